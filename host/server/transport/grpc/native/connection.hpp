// One HTTP/2 connection. nghttp2 is the protocol, and this file is the socket and gRPC's frames (no thread of its own).
#pragma once

#include <nghttp2/nghttp2.h>

#include <deque>
#include <memory>
#include <string>
#include <unordered_map>

#include "channel.hpp"
#include "front.hpp"

namespace headrace {

struct Connection {
    Connection(Front& front, std::uint64_t id, int fd, std::string peer);
    ~Connection();
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    // Each returns false if the connection has to be closed.
    bool receive();
    bool send();
    bool in_time(double time);

    void answer(Call& call, Command& command);
    void taken(Call& call);
    void drain();

    Front& front;
    const std::uint64_t id;
    const std::string peer;
    Channel channel;
    bool wants_write = false, watches_write = false;
    bool spoke = false;  // the client has sent its settings

    // For nghttp2's callbacks.
    void begin_call(std::int32_t stream);
    void add_header(Call& call, const std::string& name, const std::string& value);
    void head_complete(Call& call);
    void take(Call& call, const std::uint8_t* data, std::size_t size);
    void end_stream(Call& call);
    void stream_closed(std::int32_t stream);
    ssize_t next_data(Call& call, std::size_t max_bytes, std::uint32_t* flags);
    bool send_data(Call& call, const std::uint8_t* frame_head, std::size_t size);
    Call* call_of(std::int32_t stream);

    // The rest of the DATA frame that is being received; its bytes are read straight into the call's message.
    Call* direct = nullptr;
    std::size_t direct_left = 0;

  private:
    struct Piece {
        std::string own;
        const std::uint8_t* data;  // used if `parts` is there
        std::size_t size;
        std::shared_ptr<Parts> parts;
    };

    bool feed(const std::uint8_t* data, std::size_t size);
    void message_complete(Call& call);
    void find_place(Message& message);
    void refuse(Call& call, Reason reason);
    void refuse_http(Call& call, const char* status);
    void submit_trailers(Call& call, bool only);
    void write_own(const std::uint8_t* data, std::size_t size);
    bool write_out();
    void sent(std::size_t size);

    nghttp2_session* session_ = nullptr;
    std::unordered_map<std::int32_t, std::unique_ptr<Call>> calls_;
    std::deque<Piece> out_;
    std::size_t out_bytes_ = 0, out_at_ = 0;
    double began_, read_at_, wrote_at_, idle_since_, pinged_at_ = 0.0;
};

}  // namespace headrace
