#include "connection.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

namespace headrace {

namespace {

constexpr std::size_t SCRATCH = 64 << 10;          // bytes that are read where no message waits for them
constexpr std::size_t DIRECT = 8 << 10;            // a shorter rest of a frame is not worth a read of its own
constexpr std::size_t TURN = 4 << 20;              // bytes of one connection, before others have their turn
constexpr std::size_t HIGH_WATER = 1 << 20;        // bytes that are framed before the socket takes them
constexpr std::int32_t STREAM_WINDOW = 4 << 20;
constexpr std::int32_t CONNECTION_WINDOW = 64 << 20;
constexpr std::uint32_t FRAME = 1 << 20;
constexpr std::size_t MAX_PIECES = 64;
constexpr std::size_t MAX_TEXT = 4096;             // bytes of an error text, before it is encoded
constexpr std::size_t MAX_OWN = 4096;
constexpr std::size_t PLACED = 64 << 10;           // a shorter message is not worth a slot of its own

nghttp2_nv field(const char* name, const char* value, std::size_t size) {
    return {reinterpret_cast<std::uint8_t*>(const_cast<char*>(name)),
            reinterpret_cast<std::uint8_t*>(const_cast<char*>(value)), std::strlen(name), size,
            NGHTTP2_NV_FLAG_NO_COPY_NAME};
}

nghttp2_nv field(const char* name, const std::string& value) { return field(name, value.data(), value.size()); }

// Returns the text as gRPC's headers have it: all bytes but printable ASCII are in hexadecimal.
std::string percent_encoded(const std::string& text) {
    static const char* digits = "0123456789ABCDEF";
    std::string encoded;
    for (std::size_t at = 0; at < std::min(text.size(), MAX_TEXT); ++at) {
        auto byte = static_cast<unsigned char>(text[at]);
        if (byte >= 0x20 && byte < 0x7F && byte != '%') {
            encoded += static_cast<char>(byte);
        } else {
            encoded += '%';
            encoded += digits[byte >> 4];
            encoded += digits[byte & 15];
        }
    }
    return encoded;
}

// Returns the seconds of a header grpc-timeout: at most 8 digits and a unit. 0 if it is none.
double timeout_of(const std::string& value) {
    if (value.size() < 2 || value.size() > 9) return 0.0;
    double number = 0.0;
    for (std::size_t at = 0; at + 1 < value.size(); ++at) {
        if (value[at] < '0' || value[at] > '9') return 0.0;
        number = 10 * number + (value[at] - '0');
    }
    switch (value.back()) {
        case 'H': number *= 3600; break;
        case 'M': number *= 60; break;
        case 'S': break;
        case 'm': number *= 1e-3; break;
        case 'u': number *= 1e-6; break;
        case 'n': number *= 1e-9; break;
        default: return 0.0;
    }
    return std::max(number, 1e-9);
}

// A message that ends with one tensor: the model's name, the bytes of the fields before it, and where it begins.
struct Tensor {
    std::string model;
    std::size_t fields = 0, begins = 0;
};

// Reads the length of a field at `at`, and moves `at` behind it. Returns false if the length is not whole.
bool read_length(const Message& message, std::size_t& at, std::size_t& length) {
    length = 0;
    for (unsigned shift = 0; shift <= 28 && at < message.arrived; shift += 7) {
        std::uint8_t byte = message.data[at++];
        length |= static_cast<std::size_t>(byte & 0x7F) << shift;
        if (byte < 0x80) return true;
    }
    return false;
}

// Looks at the first bytes of a ModelInferRequest. Returns false unless one tensor is all that follows them.
bool find_tensor(const Message& message, Tensor& found) {
    constexpr std::uint8_t MODEL = 1 << 3 | 2, RAW_INPUT = 7 << 3 | 2;  // the keys of the first and the last field
    for (std::size_t at = 0, length = 0; at < message.arrived; at += length) {
        std::size_t begins = at;
        std::uint8_t key = message.data[at++];
        if (key < MODEL || key > RAW_INPUT || (key & 7) != 2 || !read_length(message, at, length)) return false;
        if (key == RAW_INPUT) {
            found.fields = begins;
            found.begins = at;
            return at + length == message.size && !found.model.empty();
        }
        if (length > message.arrived - at) return false;
        if (key == MODEL) found.model.assign(reinterpret_cast<const char*>(message.data) + at, length);
    }
    return false;
}

Connection& self(void* user_data) { return *static_cast<Connection*>(user_data); }

// Runs a callback's work. Without memory the connection ends, and no exception passes through nghttp2.
template <typename Work>
int guarded(Work work) {
    try {
        return work();
    } catch (const std::bad_alloc&) {
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
}

int on_begin_frame(nghttp2_session*, const nghttp2_frame_hd* head, void* user_data) {
    auto& connection = self(user_data);
    connection.direct = nullptr;
    connection.direct_left = 0;
    if (head->type == NGHTTP2_DATA && !(head->flags & NGHTTP2_FLAG_PADDED)) {
        connection.direct = connection.call_of(head->stream_id);
        connection.direct_left = head->length;
    }
    return 0;
}

int on_begin_headers(nghttp2_session*, const nghttp2_frame* frame, void* user_data) {
    return guarded([&] {
        if (frame->headers.cat == NGHTTP2_HCAT_REQUEST) self(user_data).begin_call(frame->hd.stream_id);
        return 0;
    });
}

int on_header(nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name, std::size_t name_size,
              const std::uint8_t* value, std::size_t value_size, std::uint8_t, void* user_data) {
    return guarded([&] {
        Call* call = self(user_data).call_of(frame->hd.stream_id);
        if (call == nullptr || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
        call->head_bytes += name_size + value_size + 32;  // RFC 9113, section 6.5.2
        if (call->head_bytes <= self(user_data).front.limits.head) {
            self(user_data).add_header(*call, std::string(reinterpret_cast<const char*>(name), name_size),
                                       std::string(reinterpret_cast<const char*>(value), value_size));
        }
        return 0;
    });
}

int on_frame(nghttp2_session*, const nghttp2_frame* frame, void* user_data) {
    return guarded([&] {
        auto& connection = self(user_data);
        if (frame->hd.type == NGHTTP2_SETTINGS) connection.spoke = true;
        if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) return 0;
        Call* call = connection.call_of(frame->hd.stream_id);
        if (call == nullptr) return 0;
        bool begins = frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST;
        if (begins) connection.head_complete(*call);
        if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) connection.end_stream(*call);
        return 0;
    });
}

int on_data(nghttp2_session*, std::uint8_t, std::int32_t stream, const std::uint8_t* data, std::size_t size,
            void* user_data) {
    return guarded([&] {
        auto& connection = self(user_data);
        connection.direct_left -= std::min(connection.direct_left, size);
        if (Call* call = connection.call_of(stream)) connection.take(*call, data, size);
        return 0;
    });
}

int on_close(nghttp2_session*, std::int32_t stream, std::uint32_t, void* user_data) {
    return guarded([&] {
        self(user_data).stream_closed(stream);
        return 0;
    });
}

// A server that has answered tells a client that still sends to stop (RFC 9113, section 8.1).
int on_sent(nghttp2_session* session, const nghttp2_frame* frame, void* user_data) {
    if (frame->hd.type != NGHTTP2_HEADERS || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) return 0;
    Call* call = self(user_data).call_of(frame->hd.stream_id);
    if (call == nullptr || call->ended) return 0;
    return nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR);
}

ssize_t read_source(nghttp2_session*, std::int32_t, std::uint8_t*, std::size_t size, std::uint32_t* flags,
                    nghttp2_data_source* source, void* user_data) {
    try {
        return self(user_data).next_data(*static_cast<Call*>(source->ptr), size, flags);
    } catch (const std::bad_alloc&) {
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
}

int on_send_data(nghttp2_session*, nghttp2_frame*, const std::uint8_t* frame_head, std::size_t size,
                 nghttp2_data_source* source, void* user_data) {
    return guarded([&] {
        auto& call = *static_cast<Call*>(source->ptr);
        return self(user_data).send_data(call, frame_head, size) ? 0 : NGHTTP2_ERR_WOULDBLOCK;
    });
}

ssize_t frame_length(nghttp2_session*, std::uint8_t, std::int32_t, std::int32_t connection_window,
                    std::int32_t stream_window, std::uint32_t max_frame, void*) {
    return std::min({static_cast<ssize_t>(connection_window), static_cast<ssize_t>(stream_window),
                     static_cast<ssize_t>(max_frame)});
}

nghttp2_session_callbacks* callbacks() {
    static nghttp2_session_callbacks* made = [] {
        nghttp2_session_callbacks* made = nullptr;
        if (nghttp2_session_callbacks_new(&made) != 0) throw std::bad_alloc();
        nghttp2_session_callbacks_set_on_begin_frame_callback(made, on_begin_frame);
        nghttp2_session_callbacks_set_on_begin_headers_callback(made, on_begin_headers);
        nghttp2_session_callbacks_set_on_header_callback(made, on_header);
        nghttp2_session_callbacks_set_on_frame_recv_callback(made, on_frame);
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(made, on_data);
        nghttp2_session_callbacks_set_on_stream_close_callback(made, on_close);
        nghttp2_session_callbacks_set_on_frame_send_callback(made, on_sent);
        nghttp2_session_callbacks_set_send_data_callback(made, on_send_data);
        nghttp2_session_callbacks_set_data_source_read_length_callback(made, frame_length);
        return made;
    }();
    return made;
}

nghttp2_option* options() {
    static nghttp2_option* made = [] {
        nghttp2_option* made = nullptr;
        if (nghttp2_option_new(&made) != 0) throw std::bad_alloc();
        nghttp2_option_set_no_auto_window_update(made, 1);
        nghttp2_option_set_no_closed_streams(made, 1);
        return made;
    }();
    return made;
}

}  // namespace

Connection::Connection(Front& front, std::uint64_t id, int fd, std::string peer)
    : front(front), id(id), peer(std::move(peer)), channel(fd, front.tls.get()) {
    began_ = read_at_ = wrote_at_ = idle_since_ = now();
    if (nghttp2_session_server_new2(&session_, callbacks(), this, options()) != 0) throw std::bad_alloc();
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, static_cast<std::uint32_t>(front.limits.connections)},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW},
        {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, FRAME},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, static_cast<std::uint32_t>(front.limits.head)},
    };
    nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings, sizeof settings / sizeof *settings);
    nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, CONNECTION_WINDOW);
}

Connection::~Connection() {
    nghttp2_session_del(session_);
    while (!calls_.empty()) stream_closed(calls_.begin()->first);
    channel.end();
    ::close(channel.fd);
}

Call* Connection::call_of(std::int32_t stream) {
    auto found = calls_.find(stream);
    return found == calls_.end() ? nullptr : found->second.get();
}

// ---- what the client sends ----

bool Connection::receive() {
    static thread_local std::uint8_t scratch[SCRATCH];
    if (!channel.shake_hands()) return false;
    if (!channel.is_open()) return true;
    for (std::size_t taken = 0; taken < TURN || channel.pending() > 0;) {
        iovec into[2];
        int count = 0;
        std::size_t straight = 0, room = taken < TURN ? SCRATCH : std::min(SCRATCH, channel.pending());
        Message* message = direct != nullptr && !direct->discards ? direct->message.get() : nullptr;
        if (taken < TURN && message != nullptr && direct_left >= DIRECT && !message->looks && message->has_room()) {
            straight = std::min(direct_left, message->room_left());
            into[count++] = {message->next(), straight};
        }
        into[count++] = {scratch, room};
        ssize_t got = channel.read(into, count);
        if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
        if (got == 0) return false;
        auto size = static_cast<std::size_t>(got);
        taken += size;
        read_at_ = now();
        std::size_t first = std::min(straight, size);
        if (first > 0 && !feed(static_cast<std::uint8_t*>(into[0].iov_base), first)) return false;
        if (size > first && !feed(scratch, size - first)) return false;
        if (size < straight + room) break;  // all that was there
    }
    return true;
}

bool Connection::feed(const std::uint8_t* data, std::size_t size) {
    ssize_t took = nghttp2_session_mem_recv(session_, data, size);
    return took >= 0;
}

void Connection::begin_call(std::int32_t stream) {
    auto call = std::make_unique<Call>();
    call->id = front.next_id();
    call->stream = stream;
    call->connection = this;
    call->began = now();
    front.calls[call->id] = call.get();
    ++front.open_calls;
    calls_[stream] = std::move(call);
}

void Connection::add_header(Call& call, const std::string& name, const std::string& value) {
    if (name == ":path") call.head->path = value;
    else if (name == ":method") call.method = value;
    else if (name == "content-type") call.content_type = value;
    else if (name == "authorization") call.head->authorization = value;
    else if (name == "traceparent") call.head->traceparent = value;
    else if (name == "grpc-encoding") call.head->encoding = value;
    else if (name == "grpc-timeout") call.head->timeout_s = timeout_of(value);
}

void Connection::head_complete(Call& call) {
    call.opened = true;
    call.head->peer = peer;
    call.streams = front.is_stream(call.head->path);
    if (call.head_bytes > front.limits.head) return refuse(call, LARGE_HEAD);
    if (call.method != "POST") return refuse_http(call, "405");
    if (call.content_type.rfind("application/grpc", 0) != 0) return refuse_http(call, "415");
    if (front.open_calls > front.limits.connections) return refuse(call, TOO_MANY);
    if (call.streams || front.early) {
        call.awaited = true;
        front.emit({OPEN, call.id, std::make_unique<Head>(*call.head), nullptr, 0});
    }
}

void Connection::take(Call& call, const std::uint8_t* data, std::size_t size) {
    nghttp2_session_consume_connection(session_, size);
    if (call.unread == 0 || call.discards) {
        nghttp2_session_consume_stream(session_, call.stream, size);
    } else {
        call.unconsumed += size;
    }
    while (size > 0 && !call.discards) {
        if (call.drops) {
            std::size_t some = std::min(size, call.dropped);
            call.dropped -= some;
            data += some;
            size -= some;
            if (call.dropped > 0) return;
            call.drops = false;
            message_complete(call);
            continue;
        }
        if (call.message == nullptr) {
            if (call.prefix_bytes == 0 && call.streams) call.began = now();
            std::size_t some = std::min(size, sizeof call.prefix - call.prefix_bytes);
            std::memcpy(call.prefix + call.prefix_bytes, data, some);
            call.prefix_bytes += some;
            data += some;
            size -= some;
            if (call.prefix_bytes < sizeof call.prefix) return;
            const auto* length = call.prefix + 1;
            std::size_t bytes = std::size_t{length[0]} << 24 | length[1] << 16 | length[2] << 8 | length[3];
            if (call.prefix[0] > 1) return refuse(call, MALFORMED);
            if (bytes > front.limits.body) return refuse(call, TOO_LARGE);
            bool looks = bytes >= PLACED && !call.streams && call.prefix[0] == 0 && front.lends(call.head->path);
            call.message = std::make_unique<Message>(front.memory, bytes, looks);
        }
        auto& message = *call.message;
        while (size > 0 && message.arrived < message.size) {
            bool has_room = message.has_room();
            std::size_t some = has_room ? std::min(size, message.room_left()) : 0;
            auto* place = message.next();
            if (!has_room || !message.count(some, front.limits.bodies)) {
                if (!call.streams) return refuse(call, NO_ROOM);
                call.drops = true;
                call.dropped = message.size - message.arrived;
                call.message.reset();
                break;
            }
            if (place != data) std::memmove(place, data, some);
            data += some;
            size -= some;
            if (message.is_seen()) find_place(message);
        }
        if (!call.drops && message.arrived == message.size) message_complete(call);
    }
}

// Decides where the rest of a message goes: to a slot of its model, if it is one tensor and a slot is free.
void Connection::find_place(Message& message) {
    Tensor tensor;
    std::unique_ptr<Place> place;
    if (find_tensor(message, tensor)) place = front.place_of(tensor.model, message.size - tensor.begins);
    if (place == nullptr) return message.stay();
    message.place_rest(std::move(place), tensor.fields, tensor.begins);
}

void Connection::message_complete(Call& call) {
    call.prefix_bytes = 0;
    int compressed = call.prefix[0];
    if (call.streams) {
        ++call.unread;
        front.emit({MESSAGE, call.id, nullptr, std::move(call.message), compressed});
        return;
    }
    call.discards = true;  // a second message has no meaning
    call.awaited = true;
    front.emit({CALL, call.id, std::move(call.head), std::move(call.message), compressed});
}

void Connection::end_stream(Call& call) {
    call.ended = true;
    if (call.discards) return;
    if (call.prefix_bytes > 0 || call.drops || call.message != nullptr) return refuse(call, MALFORMED);
    if (!call.streams) return refuse(call, NO_MESSAGE);
    front.emit({END, call.id, nullptr, nullptr, 0});
}

void Connection::taken(Call& call) {
    if (call.unread > 0) --call.unread;
    if (call.unread == 0 && call.unconsumed > 0) {
        nghttp2_session_consume_stream(session_, call.stream, call.unconsumed);
        call.unconsumed = 0;
    }
}

// Tells Python, which counts the call and answers it. All further bytes of the call are dropped.
void Connection::refuse(Call& call, Reason reason) {
    if (call.discards) return;
    call.discards = true;
    call.awaited = true;
    call.message.reset();
    front.emit({REFUSED, call.id, std::move(call.head), nullptr, reason});
}

void Connection::refuse_http(Call& call, const char* status) {
    call.discards = call.finishes = true;
    const nghttp2_nv fields[] = {field(":status", status, 3)};
    nghttp2_submit_response(session_, call.stream, fields, 1, nullptr);
}

void Connection::stream_closed(std::int32_t stream) {
    auto found = calls_.find(stream);
    if (found == calls_.end()) return;
    Call& call = *found->second;
    if (direct == &call) direct = nullptr;
    if (call.awaited) front.emit({CLOSED, call.id, nullptr, nullptr, 0});
    front.calls.erase(call.id);
    --front.open_calls;
    calls_.erase(found);
    if (calls_.empty()) idle_since_ = now();
}

// ---- what the server sends ----

void Connection::answer(Call& call, Command& command) {
    if (call.finishes) return;
    if (command.parts != nullptr) {
        Outgoing message{command.parts, std::string(5, '\0')};
        auto size = static_cast<std::uint32_t>(command.parts->size);
        for (int byte = 0; byte < 4; ++byte) message.prefix[4 - byte] = static_cast<char>(size >> 8 * byte);
        message.left = command.parts->size + message.prefix.size();
        if (call.queued == 0) call.sent = now();
        call.queued += message.left;
        call.queue.push_back(std::move(message));
    }
    if (command.last) {
        call.awaited = false;
        call.finishes = call.discards = true;
        call.message.reset();
        call.status = command.status;
        call.text = std::move(command.text);
    }
    if (!call.answering) {
        call.answering = true;
        if (call.queue.empty() && call.finishes) return submit_trailers(call, true);
        const nghttp2_nv fields[] = {
            field(":status", "200", 3),
            field("content-type", "application/grpc", 16),
            field("grpc-accept-encoding", "identity,deflate,gzip", 21),
        };
        nghttp2_data_provider source{};
        source.source.ptr = &call;
        source.read_callback = read_source;
        nghttp2_submit_response(session_, call.stream, fields, sizeof fields / sizeof *fields, &source);
    } else if (call.deferred) {
        call.deferred = false;
        nghttp2_session_resume_data(session_, call.stream);
    }
}

void Connection::submit_trailers(Call& call, bool only) {
    const std::string status = std::to_string(call.status), text = percent_encoded(call.text);
    nghttp2_nv fields[4];
    std::size_t count = 0;
    if (only) {
        fields[count++] = field(":status", "200", 3);
        fields[count++] = field("content-type", "application/grpc", 16);
    }
    fields[count++] = field("grpc-status", status);
    if (!text.empty()) fields[count++] = field("grpc-message", text);
    if (only) {
        nghttp2_submit_response(session_, call.stream, fields, count, nullptr);
    } else {
        nghttp2_submit_trailer(session_, call.stream, fields, count);
    }
}

ssize_t Connection::next_data(Call& call, std::size_t max_bytes, std::uint32_t* flags) {
    if (call.queued == 0 && !call.finishes) {
        call.deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    std::size_t size = std::min(max_bytes, call.queued);
    if (size > 0) *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (size == call.queued && call.finishes) {
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        submit_trailers(call, false);
    }
    return static_cast<ssize_t>(size);
}

bool Connection::send_data(Call& call, const std::uint8_t* frame_head, std::size_t size) {
    if (out_bytes_ >= HIGH_WATER) return false;
    call.sent = now();
    call.queued -= size;
    write_own(frame_head, 9);
    while (size > 0) {
        Outgoing& message = call.queue.front();
        bool in_prefix = message.slice == 0;
        const auto* data = in_prefix ? reinterpret_cast<const std::uint8_t*>(message.prefix.data())
                                     : message.parts->slices[message.slice - 1].first;
        std::size_t length = in_prefix ? message.prefix.size() : message.parts->slices[message.slice - 1].second;
        std::size_t some = std::min(size, length - message.at);
        if (in_prefix || some < 64) {
            write_own(data + message.at, some);
        } else {
            out_.push_back({std::string(), data + message.at, some, message.parts});
            out_bytes_ += some;
        }
        message.at += some;
        message.left -= some;
        size -= some;
        if (message.at == length) {
            message.at = 0;
            ++message.slice;
        }
        if (message.left > 0) continue;
        call.queue.pop_front();
        if (call.streams && call.awaited) front.emit({SENT, call.id, nullptr, nullptr, 0});
    }
    return true;
}

void Connection::write_own(const std::uint8_t* data, std::size_t size) {
    out_bytes_ += size;
    if (out_.empty() || out_.back().parts != nullptr || out_.back().own.size() > MAX_OWN) {
        out_.push_back({std::string(), nullptr, 0, nullptr});
    }
    out_.back().own.append(reinterpret_cast<const char*>(data), size);
    out_.back().size += size;
}

bool Connection::send() {
    if (!channel.shake_hands()) return false;
    if (!channel.is_open()) {
        wants_write = channel.needs_write();
        return true;
    }
    for (;;) {
        while (out_bytes_ < HIGH_WATER) {
            const std::uint8_t* data = nullptr;
            ssize_t size = nghttp2_session_mem_send(session_, &data);
            if (size < 0) return false;
            if (size == 0) break;
            write_own(data, static_cast<std::size_t>(size));
        }
        if (out_.empty()) {
            wants_write = false;
            return nghttp2_session_want_read(session_) != 0 || nghttp2_session_want_write(session_) != 0;
        }
        if (!write_out()) return false;
        if (!out_.empty()) return true;
    }
}

// Writes until all is written, or until the socket takes no more. Then `wants_write` is set.
bool Connection::write_out() {
    bool waited = wants_write;
    wants_write = false;
    while (!out_.empty()) {
        iovec from[MAX_PIECES];
        int count = 0;
        std::size_t wanted = 0;
        for (const Piece& piece : out_) {
            if (count == MAX_PIECES) break;
            const auto* data = piece.parts != nullptr ? piece.data : reinterpret_cast<const std::uint8_t*>(piece.own.data());
            std::size_t skip = count == 0 ? out_at_ : 0;
            from[count++] = {const_cast<std::uint8_t*>(data) + skip, piece.size - skip};
            wanted += piece.size - skip;
        }
        ssize_t done = channel.write(from, count, wanted);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0 && errno != EAGAIN && errno != EWOULDBLOCK) return false;
        if (done > 0 || !waited) wrote_at_ = now();
        if (done > 0) sent(static_cast<std::size_t>(done));
        wants_write = channel.needs_write();
        if (done < 0 || wants_write) return true;
    }
    return true;
}

// Drops so many bytes of what is framed.
void Connection::sent(std::size_t size) {
    out_bytes_ -= size;
    for (size += out_at_; !out_.empty() && size >= out_.front().size; out_.pop_front()) size -= out_.front().size;
    out_at_ = size;
}

void Connection::drain() { nghttp2_submit_shutdown_notice(session_); }

// ---- time ----

bool Connection::in_time(double time) {
    const Limits& limits = front.limits;
    if (!spoke && time - began_ > limits.client_s) return false;
    if (wants_write && time - wrote_at_ > limits.client_s) return false;
    if (calls_.empty() && time - idle_since_ > limits.idle_s) {
        nghttp2_session_terminate_session(session_, NGHTTP2_NO_ERROR);  // `send` closes the connection then
        return true;
    }
    if (pinged_at_ > read_at_ && time - pinged_at_ > limits.client_s) return false;
    if (pinged_at_ <= read_at_ && time - read_at_ > limits.idle_s) {
        nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, nullptr);
        pinged_at_ = time;
    }
    for (auto& [stream, call] : calls_) {
        if (!call->opened) {
            if (time - call->began > limits.client_s) return false;
            continue;
        }
        bool receives = !call->discards && (!call->streams || call->prefix_bytes > 0);
        std::size_t arrived = call->message != nullptr ? call->message->arrived : 0;
        double allowed_s = limits.client_s + static_cast<double>(arrived) / limits.bytes_per_s;
        if (receives && call->unread == 0 && time - call->began > allowed_s) refuse(*call, TOO_LATE);
        if (!call->streams && call->queued > 0 && time - call->sent > limits.client_s) {
            nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, stream, NGHTTP2_CANCEL);
        }
    }
    return true;
}

}  // namespace headrace
