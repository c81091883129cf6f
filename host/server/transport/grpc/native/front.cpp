#include "front.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <iterator>
#include <new>
#include <stdexcept>
#include <system_error>

#include "connection.hpp"

namespace headrace {

namespace {

constexpr std::uint64_t LISTENER = 0, WAKE = 1;
constexpr double TICK_S = 0.1;      // time between two looks at the clock
constexpr double PAUSE_S = 0.1;     // pause of accepting without a file descriptor
constexpr std::size_t MAX_RELEASED = 1 << 20;  // bytes of sent answers that may wait for Python's next turn
constexpr int MAX_EVENTS = 64;

void poke(int fd) {
    std::uint64_t one = 1;
    while (::write(fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

void drain_eventfd(int fd) {
    std::uint64_t count = 0;
    while (::read(fd, &count, sizeof count) < 0 && errno == EINTR) {
    }
}

// Returns the address in the form of gRPC's peer().
std::string peer_of(const sockaddr_storage& address) {
    char text[INET6_ADDRSTRLEN] = "";
    if (address.ss_family == AF_INET) {
        const auto& own = reinterpret_cast<const sockaddr_in&>(address);
        inet_ntop(AF_INET, &own.sin_addr, text, sizeof text);
        return "ipv4:" + std::string(text) + ":" + std::to_string(ntohs(own.sin_port));
    }
    const auto& own = reinterpret_cast<const sockaddr_in6&>(address);
    inet_ntop(AF_INET6, &own.sin6_addr, text, sizeof text);
    return "ipv6:[" + std::string(text) + "]:" + std::to_string(ntohs(own.sin6_port));
}

}  // namespace

double now() {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

Front::Front(int listener, Limits limits, std::unordered_set<std::string> streams, std::string placed, bool early,
             std::unique_ptr<TlsContext> tls)
    : limits(limits), early(early), tls(std::move(tls)), streams_(std::move(streams)), placed_(std::move(placed)), listener_(listener) {
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ready_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = WAKE;
    if (epoll_ < 0 || wake_ < 0 || ready_ < 0 || epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event) < 0) {
        int reason = errno;
        for (int fd : {epoll_, wake_, ready_, listener_}) {
            if (fd >= 0) ::close(fd);
        }
        throw std::system_error(reason, std::generic_category());
    }
    listen(true);
    sigset_t all, before;  // signals are for Python's thread
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread(&Front::run, this);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Front::~Front() { close(); }

void Front::close() {
    if (closed_) return;
    closed_ = true;
    tell({Command::CLOSE});
    thread_.join();
    commands_.clear();
    for (int fd : {epoll_, wake_, ready_}) ::close(fd);
    if (listener_ >= 0) ::close(listener_);
}

// ---- between the threads ----

std::vector<Event> Front::events() {
    drain_eventfd(ready_);
    std::vector<Event> found;
    std::lock_guard lock(mutex_);
    found.swap(events_);
    return found;
}

void Front::emit(Event event) {
    bool first = false;
    {
        std::lock_guard lock(mutex_);
        first = events_.empty();
        events_.push_back(std::move(event));
    }
    if (first) poke(ready_);
}

void Front::tell(Command command) {
    if (closed_ && command.what != Command::CLOSE) return;
    bool first = false;
    {
        std::lock_guard lock(mutex_);
        first = commands_.empty();
        commands_.push_back(std::move(command));
    }
    if (first) poke(wake_);
}

std::shared_ptr<Parts> Front::share(std::unique_ptr<Parts> parts) {
    memory->held += parts->size;
    return {parts.release(), [this](Parts* sent) { retire(sent); }};
}

void Front::retire(Parts* parts) {
    memory->held -= parts->size;
    bool many = false;
    {
        std::lock_guard lock(mutex_);
        many = released_bytes_ <= MAX_RELEASED && released_bytes_ + parts->size > MAX_RELEASED;
        released_.push_back(parts);
        released_bytes_ += parts->size;
    }
    if (many) poke(ready_);
}

std::vector<Parts*> Front::released() {
    std::vector<Parts*> found;
    std::lock_guard lock(mutex_);
    found.swap(released_);
    released_bytes_ = 0;
    return found;
}

// ---- slots of models ----

int Front::lend(const std::string& model, const SlotRange& range, std::vector<std::uint32_t> slots) {
    auto pool = std::make_shared<Pool>(range, std::move(slots));
    std::lock_guard lock(pools_mutex_);
    pools_[pool->id] = newest_[model] = pool;
    return pool->id;
}

bool Front::take_back(int id) {
    std::lock_guard lock(pools_mutex_);
    auto found = pools_.find(id);
    if (found == pools_.end()) return false;
    for (auto newest = newest_.begin(); newest != newest_.end();) {
        newest = newest->second == found->second ? newest_.erase(newest) : std::next(newest);
    }
    bool used = found->second->end();
    pools_.erase(found);
    return used;
}

std::unique_ptr<Place> Front::place_of(const std::string& model, std::size_t bytes) {
    std::lock_guard lock(pools_mutex_);
    auto found = newest_.find(model);
    std::uint32_t slot = 0;
    if (found == newest_.end() || found->second->bytes != bytes || !found->second->take(slot)) return nullptr;
    return std::make_unique<Place>(found->second, slot);
}

// ---- the thread ----

// Runs work for a connection. Without memory this connection ends, and the others go on.
template <typename Work>
void Front::guarded(std::uint64_t id, Work work) {
    try {
        work();
    } catch (const std::bad_alloc&) {
        close_connection(id);
    }
}

void Front::run() {
    epoll_event events[MAX_EVENTS];
    std::vector<Command> commands;
    double ticked = now();
    while (!closing_) {
        bool timed = !connections_.empty() || accepts_again_ > 0.0;
        int count = epoll_wait(epoll_, events, MAX_EVENTS, timed ? static_cast<int>(TICK_S * 1e3) : -1);
        for (int number = 0; number < count; ++number) {
            std::uint64_t id = events[number].data.u64;
            if (id == LISTENER) {
                accept_all();
            } else if (id == WAKE) {
                drain_eventfd(wake_);
            } else {
                guarded(id, [&] { serve(id, events[number].events); });
            }
        }
        {
            std::lock_guard lock(mutex_);
            commands.swap(commands_);
        }
        std::unordered_set<std::uint64_t> touched;
        for (Command& command : commands) {
            auto found = calls.find(command.call);
            std::uint64_t id = found == calls.end() ? LISTENER : found->second->connection->id;
            touched.insert(id);
            guarded(id, [&] { obey(command); });
        }
        commands.clear();
        for (std::uint64_t id : touched) guarded(id, [&] { pump(id); });
        if (now() - ticked > TICK_S) {
            ticked = now();
            look_at_clock();
        }
    }
    connections_.clear();
}

void Front::serve(std::uint64_t id, std::uint32_t events) {
    auto found = connections_.find(id);
    if (found == connections_.end()) return;
    bool reads = (events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0;
    if (reads && !found->second->receive()) return close_connection(id);
    pump(id);
}

void Front::obey(Command& command) {
    if (command.what == Command::CLOSE) {
        closing_ = true;
    } else if (command.what == Command::DRAIN) {
        draining_ = true;
        listen(false);
        if (listener_ >= 0) ::close(listener_);
        listener_ = -1;
        for (auto& [id, connection] : connections_) connection->drain();
        std::vector<std::uint64_t> all;
        for (auto& [id, connection] : connections_) all.push_back(id);
        for (std::uint64_t each : all) guarded(each, [&] { pump(each); });
    } else if (auto found = calls.find(command.call); found != calls.end()) {
        Call& call = *found->second;
        if (command.what == Command::ANSWER) {
            call.connection->answer(call, command);
        } else {
            call.connection->taken(call);
        }
    }
}

void Front::listen(bool on) {
    if (on == listens_ || listener_ < 0) return;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = LISTENER;
    epoll_ctl(epoll_, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, listener_, &event);
    listens_ = on;
}

void Front::accept_all() {
    for (;;) {
        sockaddr_storage address{};
        socklen_t size = sizeof address;
        int fd = accept4(listener_, reinterpret_cast<sockaddr*>(&address), &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (errno == EINTR || errno == ECONNABORTED) continue;
            if (errno != EAGAIN && errno != EWOULDBLOCK) {  // no descriptor or no memory
                listen(false);
                accepts_again_ = now() + PAUSE_S;
            }
            return;
        }
        if (connections_.size() >= limits.connections || too_many_handshakes()) {
            ::close(fd);
            continue;
        }
        int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        std::uint64_t id = ++last_connection_;
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.u64 = id;
        if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) < 0) {
            ::close(fd);
            continue;
        }
        try {
            connections_[id] = std::make_unique<Connection>(*this, id, fd, peer_of(address));
        } catch (const std::bad_alloc&) {
            connections_.erase(id);
            ::close(fd);
            continue;
        }
        guarded(id, [&] { pump(id); });
    }
}

// Tells whether half of all connections are in their handshakes, so that clients which do not end them leave room.
bool Front::too_many_handshakes() const {
    if (tls == nullptr || connections_.size() < limits.connections / 2) return false;
    std::size_t shaking = 0;
    for (auto& [id, connection] : connections_) shaking += connection->channel.is_open() ? 0 : 1;
    return shaking >= std::max(limits.connections / 2, std::size_t{1});
}

// Sends what a connection has, and closes it at its end.
void Front::pump(std::uint64_t id) {
    auto found = connections_.find(id);
    if (found == connections_.end()) return;
    Connection& connection = *found->second;
    if (!connection.send()) return close_connection(id);
    if (connection.wants_write != connection.watches_write) {
        epoll_event event{};
        event.events = EPOLLIN | (connection.wants_write ? EPOLLOUT : 0U);
        event.data.u64 = id;
        epoll_ctl(epoll_, EPOLL_CTL_MOD, connection.channel.fd, &event);
        connection.watches_write = connection.wants_write;
    }
}

void Front::close_connection(std::uint64_t id) { connections_.erase(id); }

void Front::look_at_clock() {
    double time = now();
    if (accepts_again_ > 0.0 && time > accepts_again_) {
        accepts_again_ = 0.0;
        listen(true);
    }
    std::vector<std::uint64_t> late, rest;
    for (auto& [id, connection] : connections_) (connection->in_time(time) ? rest : late).push_back(id);
    for (std::uint64_t id : late) close_connection(id);
    for (std::uint64_t id : rest) guarded(id, [&] { pump(id); });
}

}  // namespace headrace
