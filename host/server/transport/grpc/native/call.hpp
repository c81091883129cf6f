// One gRPC call and the bytes that belong to it. Nothing here is shared between threads, except `Memory`.
#pragma once

#ifndef PY_SSIZE_T_CLEAN
#define PY_SSIZE_T_CLEAN
#endif
#include <Python.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "places.hpp"

namespace headrace {

using CallId = std::uint64_t;

// Limits on what clients can use. Python's protocol/limits.py explains the fields.
struct Limits {
    std::size_t body, bodies, head, connections;
    double client_s, idle_s, bytes_per_s;
};

// Counts the bytes of all messages and answers in memory. Messages outlive the front, so each shares this object.
struct Memory {
    std::atomic<std::size_t> held{0};
};

// The bytes of one message, of which `arrived` are there. The memory grows with them, and counts as they arrive.
// A message with a tensor for a slot has only its first `head` bytes here, and all others go straight into the slot.
class Message {
  public:
    // `looks`: whether only the first bytes have room until `place_rest` or `stay` decides where the others go.
    Message(std::shared_ptr<Memory> memory, std::size_t size, bool looks)
        : size(size), looks(looks), memory_(std::move(memory)) {}
    ~Message() {
        std::free(data);
        memory_->held -= arrived;
    }
    Message(const Message&) = delete;
    Message& operator=(const Message&) = delete;

    // Returns whether there is memory for more bytes: for all of a short message, and for a first part of a long one.
    bool has_room() {
        if (place != nullptr || (data != nullptr && room > arrived)) return true;
        std::size_t wanted = looks ? std::min(size, LOOKED_AT) : data == nullptr && size > FIRST ? FIRST : size;
        auto* grown = static_cast<std::uint8_t*>(std::realloc(data, wanted > 0 ? wanted : 1));
        if (grown == nullptr) return false;
        data = grown;
        room = wanted;
        return true;
    }
    std::size_t room_left() const { return (place != nullptr ? size : room) - arrived; }
    std::uint8_t* next() const { return place != nullptr ? place->data() + (arrived - head) : data + arrived; }

    // Counts `more` bytes. Returns false, and counts nothing, if all messages and answers would exceed `bodies`.
    bool count(std::size_t more, std::size_t bodies) {
        if (memory_->held.fetch_add(more) + more > bodies) {
            memory_->held -= more;
            return false;
        }
        arrived += more;
        return true;
    }

    // Moves the bytes from `from` on to a slot, which receives all further bytes. `fields` bytes stay of those before.
    void place_rest(std::unique_ptr<Place> slot, std::size_t fields, std::size_t from) {
        place = std::move(slot);
        head = from;
        said = fields;
        looks = false;
        std::memcpy(place->data(), data + from, arrived - from);
    }
    void stay() { looks = false; }
    bool is_seen() const { return looks && arrived == std::min(size, LOOKED_AT); }

    std::uint8_t* data = nullptr;
    const std::size_t size;
    std::size_t room = 0, arrived = 0, head = 0, said = 0;
    bool looks;
    std::unique_ptr<Place> place;

  private:
    static constexpr std::size_t FIRST = std::size_t{1} << 20, LOOKED_AT = 4096;
    std::shared_ptr<Memory> memory_;
};

// The bytes of an answer, which lie in Python's objects. Only Python's thread may free it.
struct Parts {
    std::vector<Py_buffer> views;
    std::string copied;  // of a short answer, which needs no views
    std::vector<std::pair<const std::uint8_t*, std::size_t>> slices;
    std::size_t size = 0;
};

// What a call says before its message.
struct Head {
    std::string path, authorization, traceparent, encoding, peer;
    double timeout_s = 0.0;  // 0: no time limit
};

// Why the front itself refuses a call. Python's native_server.py has the same numbers.
enum Reason { NONE, TOO_LARGE, NO_ROOM, TOO_LATE, NO_MESSAGE, MALFORMED, LARGE_HEAD, TOO_MANY };

// What Python is told. The numbers are those of Python's native_server.py.
enum Kind {
    CALL,     // a call with its only message
    OPEN,     // a call whose messages follow, or that has to be authorized first
    MESSAGE,  // a message of a stream; without bytes if there was no room for it
    END,      // a stream has no further message
    CLOSED,   // the client has gone before the answer
    SENT,     // a message of a stream's answer has left
    REFUSED,  // `number` is the reason
};

struct Event {
    Kind kind;
    CallId call;
    std::unique_ptr<Head> head;
    std::unique_ptr<Message> message;
    int number = 0;  // a reason, or whether the message is compressed
};

// A message of an answer that is not sent yet: gRPC's prefix of 5 bytes, and the slices of `parts`.
struct Outgoing {
    std::shared_ptr<Parts> parts;
    std::string prefix;
    std::size_t slice = 0, at = 0;  // the next byte; slice 0 is the prefix
    std::size_t left = 0;
};

struct Connection;

struct Call {
    CallId id = 0;
    std::int32_t stream = 0;
    Connection* connection = nullptr;
    std::unique_ptr<Head> head = std::make_unique<Head>();
    std::size_t head_bytes = 0;
    std::string method, content_type;

    // What the client sends.
    std::uint8_t prefix[5] = {};
    std::size_t prefix_bytes = 0;
    std::unique_ptr<Message> message;
    std::size_t dropped = 0;  // bytes of a stream's message that has no room, which are still to come
    bool drops = false;
    double began = 0.0;  // when the call, or the message of a stream, began
    bool streams = false, opened = false, discards = false, ended = false;
    bool awaited = false;         // Python knows of the call, and has not answered it yet
    std::size_t unread = 0;       // messages of a stream that Python has not taken
    std::size_t unconsumed = 0;   // bytes for which the client gets no new window before Python takes those messages

    // What the server sends.
    std::deque<Outgoing> queue;
    std::size_t queued = 0;  // bytes in `queue`
    bool answering = false, finishes = false, deferred = false;
    int status = 0;
    std::string text;
    double sent = 0.0;  // when the last byte of an answer left, or when it could begin to leave
};

}  // namespace headrace
