// The front's thread owns all connections. Two queues lie between it and Python's thread, each with an eventfd.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "call.hpp"
#include "channel.hpp"

namespace headrace {

// What Python tells the front.
struct Command {
    enum What { ANSWER, TAKEN, DRAIN, CLOSE } what;
    CallId call = 0;
    std::shared_ptr<Parts> parts{};  // a message of the answer, or none
    bool last = false;
    int status = 0;
    std::string text{};
};

double now();

class Front {
  public:
    Front(int listener, Limits limits, std::unordered_set<std::string> streams, std::string placed, bool early,
          std::unique_ptr<TlsContext> tls);
    ~Front();
    Front(const Front&) = delete;
    Front& operator=(const Front&) = delete;

    // For Python's thread.
    int ready_fd() const { return ready_; }
    std::vector<Event> events();
    void tell(Command command);
    std::shared_ptr<Parts> share(std::unique_ptr<Parts> parts);
    std::vector<Parts*> released();  // answers that were sent or dropped
    int lend(const std::string& model, const SlotRange& range, std::vector<std::uint32_t> slots);
    bool take_back(int pool);  // returns whether messages still use slots of it, and free its memory later
    void close();

    // For the front's thread.
    void emit(Event event);
    CallId next_id() { return ++last_id_; }
    bool is_stream(const std::string& path) const { return streams_.count(path) > 0; }
    bool lends(const std::string& path) const { return path == placed_; }
    std::unique_ptr<Place> place_of(const std::string& model, std::size_t bytes);  // none if no slot is free

    const Limits limits;
    const bool early;  // whether Python is told of a call before its message, to authorize it
    const std::unique_ptr<TlsContext> tls;  // none for a port without TLS
    const std::shared_ptr<Memory> memory = std::make_shared<Memory>();
    std::atomic<std::size_t> open_calls{0};
    std::unordered_map<CallId, Call*> calls;

  private:
    void run();
    template <typename Work>
    void guarded(std::uint64_t id, Work work);
    void serve(std::uint64_t id, std::uint32_t events);
    void accept_all();
    bool too_many_handshakes() const;
    void obey(Command& command);
    void look_at_clock();
    void close_connection(std::uint64_t id);
    void pump(std::uint64_t id);
    void retire(Parts* parts);
    void listen(bool on);

    const std::unordered_set<std::string> streams_;
    const std::string placed_;  // the method whose tensors go to slots
    int listener_, epoll_, wake_, ready_;
    bool listens_ = false, draining_ = false, closing_ = false, closed_ = false;
    double accepts_again_ = 0.0;
    CallId last_id_ = 0;
    std::uint64_t last_connection_ = 1;  // smaller numbers are the listener and the eventfd
    std::unordered_map<std::uint64_t, std::unique_ptr<Connection>> connections_;

    std::mutex pools_mutex_;  // guards the two below
    std::unordered_map<int, std::shared_ptr<Pool>> pools_;          // all that are not taken back
    std::unordered_map<std::string, std::shared_ptr<Pool>> newest_;  // by model

    std::mutex mutex_;  // guards the four below
    std::vector<Command> commands_;
    std::vector<Event> events_;
    std::vector<Parts*> released_;
    std::size_t released_bytes_ = 0;

    std::thread thread_;
};

}  // namespace headrace
