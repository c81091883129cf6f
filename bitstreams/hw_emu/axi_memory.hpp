// The memory that AXI4 masters reach: one ReadPort or WritePort for each channel pair, all on the same device memory.
//
// Masters may have ids, which come back with the answers.
// Bursts of a port are served in order. The first data beat of a read comes `latency` clocks after its address was
// taken, the response to a write as long after its last beat; beats follow at `bandwidth` a clock. Each clock has two
// halves: drive() sets the pins, and after the kernel's logic has settled sample() takes the transfers that both sides
// agreed on. A breach of AXI's rules throws a KernelError.
#pragma once

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "hw_emu.h"

namespace hw_emu {

struct KernelError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

[[noreturn, gnu::cold, gnu::format(printf, 1, 2)]] inline void fail(const char* format, ...) {
    char text[900];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    throw KernelError(text);
}

inline constexpr uint8_t OKAY = 0, SLVERR = 2, DECERR = 3;

// Reproducible coin flips (xorshift64*).
class Stalls {
  public:
    void configure(double chance, uint64_t seed) {
        threshold_ = chance <= 0 ? 0 : static_cast<uint64_t>(std::min(chance, 0.99) * 4294967296.0);
        state_ = seed * 0x9E3779B97F4A7C15ull | 1;
    }
    bool operator()() {
        return threshold_ != 0 && (word() >> 32) < threshold_;
    }
    uint64_t word() {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return state_ * 0x2545F4914F6CDD1Dull;
    }

  private:
    uint64_t threshold_ = 0, state_ = 1;
};

// Answers of memory that are errors: those beyond the device's memory, and random ones.
class Errors {
  public:
    void configure(double chance, uint64_t seed) { chance_.configure(chance, seed); }
    // Of a beat or a write whose memory is `host`.
    uint8_t answer(const uint8_t* host) {
        if (!host) return DECERR;
        if (!chance_()) return OKAY;
        return chance_.word() >> 63 ? SLVERR : DECERR;
    }
    // What a beat with an error brings.
    void scramble(uint8_t* data, unsigned bytes) {
        for (unsigned i = 0; i < bytes; i++) data[i] = static_cast<uint8_t>(chance_.word() >> 56);
    }

  private:
    Stalls chance_;
};

// Data beats for each clock, as a fraction, with at most one beat saved up.
class Bandwidth {
  public:
    void configure(double beats) { step_ = std::max<uint64_t>(1, static_cast<uint64_t>(beats * One)); }
    void clock() { credit_ = std::min(credit_ + step_, One + step_ - 1); }  // keeps the fraction of a beat
    bool beat() const { return credit_ >= One; }
    void spend() { credit_ -= One; }

  private:
    static constexpr uint64_t One = 1ull << 32;
    uint64_t credit_ = One, step_ = One;
};

class Memory {
  public:
    std::vector<hw_emu_range> ranges;

    // Null where there is none.
    uint8_t* find(uint64_t address, uint64_t size) const {
        for (const hw_emu_range& range : ranges) {
            if (address >= range.base && size <= range.size && address - range.base <= range.size - size) {
                return range.host + (address - range.base);
            }
        }
        return nullptr;
    }
};

struct AddressPins {
    const uint8_t* valid = nullptr;
    const uint64_t* address = nullptr;
    const uint8_t *len = nullptr, *size = nullptr, *burst = nullptr, *cache = nullptr, *prot = nullptr;
    uint8_t* ready = nullptr;
    const uint8_t* id = nullptr;  // null: the master has no ids
};

struct ReadPins {
    AddressPins address;
    uint8_t *data = nullptr, *resp = nullptr, *last = nullptr, *valid = nullptr, *id = nullptr;
    const uint8_t* ready = nullptr;
};

struct WritePins {
    AddressPins address;
    const uint8_t *data = nullptr, *strobe = nullptr, *last = nullptr, *valid = nullptr;
    uint8_t* ready = nullptr;
    uint8_t *resp = nullptr, *resp_valid = nullptr, *id = nullptr;
    const uint8_t* resp_ready = nullptr;
};

struct Burst {
    uint8_t* host;  // null: no memory there
    uint64_t due;
    uint32_t beats;
    uint32_t done;
    uint8_t id;
};

inline constexpr uint32_t RING = 64;
// Xilinx's interconnect requires this of every master (AMBA AXI, A4.4 and A4.7; UG1037): normal memory, modifiable and
// bufferable, so that bursts may be widened; data, secure, unprivileged.
inline constexpr uint8_t CACHE = 3, PROT = 0;

// The address channel of either direction, and the bursts that it let in.
class AddressChannel {
  public:
    AddressChannel(const AddressPins& pins, const char* port, const char* name, unsigned bytes)
        : pins_(pins), port_(port), name_(name), bytes_(bytes) {}

    // Takes effect at once; bursts in flight keep theirs.
    void configure(const hw_emu_options& options, uint64_t seed) {
        latency_ = options.latency;
        limit_ = std::clamp<uint32_t>(options.max_outstanding, 1, RING);
        stalls_.configure(options.stall, seed);
    }

    void reset() {
        head_ = tail_ = 0;
        waiting_ = false;
    }

    void drive() { *pins_.ready = outstanding() < limit_ && !stalls_(); }

    bool sample(uint64_t now, const Memory& memory) {
        if (!*pins_.valid) {
            if (waiting_) fail("%s: %svalid fell before %sready", port_, name_, name_);
            return false;
        }
        if (waiting_ && (*pins_.address != address_ || *pins_.len != len_ || id() != id_)) {
            fail("%s: the address changed while %svalid waited for %sready", port_, name_, name_);
        }
        if (!*pins_.ready) {
            waiting_ = true;
            address_ = *pins_.address;
            len_ = *pins_.len;
            id_ = id();
            return false;
        }
        waiting_ = false;
        accept(now, memory);
        return true;
    }

    bool empty() const { return head_ == tail_; }
    uint32_t outstanding() const { return tail_ - head_; }
    Burst& front() { return ring_[head_ % RING]; }
    Burst& at(uint32_t number) { return ring_[number % RING]; }
    void pop() { head_++; }
    uint32_t head() const { return head_; }
    uint32_t tail() const { return tail_; }
    const char* port() const { return port_; }
    uint32_t latency() const { return latency_; }

  private:
    void accept(uint64_t now, const Memory& memory) {
        const uint64_t address = *pins_.address;
        const uint32_t beats = *pins_.len + 1u;
        const unsigned long long shown = address;
        if (*pins_.burst != 1) fail("%s: burst at 0x%llx is not of type INCR", port_, shown);
        if (*pins_.cache != CACHE || *pins_.prot != PROT) {
            fail("%s: burst at 0x%llx has %scache %u and %sprot %u; an Alveo card's memory is given %u and %u", port_,
                 shown, name_, *pins_.cache, name_, *pins_.prot, CACHE, PROT);
        }
        if (1u << *pins_.size != bytes_) {
            fail("%s: burst at 0x%llx has %ssize %u; this memory takes whole words of %u bytes only", port_, shown,
                 name_, *pins_.size, bytes_);
        }
        if (address % bytes_) fail("%s: burst at 0x%llx does not begin at a word of %u bytes", port_, shown, bytes_);
        const uint64_t size = static_cast<uint64_t>(beats) * bytes_;
        if (address / 4096 != (address + size - 1) / 4096) {
            fail("%s: burst of %u beats at 0x%llx crosses a 4 KiB border", port_, beats, shown);
        }
        ring_[tail_++ % RING] = Burst{memory.find(address, size), now + latency_, beats, 0, id()};
    }

    uint8_t id() const { return pins_.id ? *pins_.id : 0; }

    AddressPins pins_;
    const char *port_, *name_;
    unsigned bytes_;
    Burst ring_[RING];
    uint32_t head_ = 0, tail_ = 0;
    bool waiting_ = false;
    uint64_t address_ = 0;
    uint8_t len_ = 0, id_ = 0;
    uint32_t latency_ = 1, limit_ = 1;
    Stalls stalls_;
};

class ReadPort {
  public:
    ReadPort(const ReadPins& pins, const char* port, unsigned bytes)
        : pins_(pins), bytes_(bytes), addresses_(pins.address, port, "ar", bytes) {}

    void configure(const hw_emu_options& options, uint64_t seed) {
        addresses_.configure(options, seed);
        stalls_.configure(options.stall, seed ^ 0x5bd1e995);
        errors_.configure(options.errors, seed ^ 0x7feb352d);
        bandwidth_.configure(options.bandwidth);
    }

    void reset() {
        addresses_.reset();
        shown_ = false;
    }

    void drive(uint64_t now) {
        addresses_.drive();
        bandwidth_.clock();
        if (shown_) return;  // a beat stays until it is taken
        *pins_.valid = 0;
        if (addresses_.empty()) return;
        const Burst& burst = addresses_.front();
        if (now < burst.due || !bandwidth_.beat() || stalls_()) return;
        shown_ = true;
        *pins_.valid = 1;
        *pins_.last = burst.done + 1 == burst.beats;
        *pins_.resp = errors_.answer(burst.host);
        if (pins_.id) *pins_.id = burst.id;
        if (*pins_.resp == OKAY) {
            std::memcpy(pins_.data, burst.host + static_cast<size_t>(burst.done) * bytes_, bytes_);
        } else {
            errors_.scramble(pins_.data, bytes_);
        }
    }

    // Returns whether data moved.
    bool sample(uint64_t now, const Memory& memory, hw_emu_traffic& traffic) {
        const bool begun = addresses_.sample(now, memory);
        traffic.read_bursts += begun;
        if (!shown_ || !*pins_.ready) return begun;
        shown_ = false;
        bandwidth_.spend();
        traffic.read_beats++;
        traffic.read_errors += *pins_.resp != OKAY;
        Burst& burst = addresses_.front();
        if (++burst.done == burst.beats) addresses_.pop();
        return true;
    }

  private:
    ReadPins pins_;
    unsigned bytes_;
    AddressChannel addresses_;
    Bandwidth bandwidth_;
    Stalls stalls_;
    Errors errors_;
    bool shown_ = false;
};

class WritePort {
  public:
    WritePort(const WritePins& pins, const char* port, unsigned bytes)
        : pins_(pins), bytes_(bytes), addresses_(pins.address, port, "aw", bytes), held_(bytes) {}

    void configure(const hw_emu_options& options, uint64_t seed) {
        addresses_.configure(options, seed);
        data_stalls_.configure(options.stall, seed ^ 0x5bd1e995);
        response_stalls_.configure(options.stall, seed ^ 0x27d4eb2f);
        errors_.configure(options.errors, seed ^ 0x7feb352d);
        bandwidth_.configure(options.bandwidth);
    }

    void reset() {
        addresses_.reset();
        filling_ = 0;
        shown_ = waiting_ = false;
    }

    // Bursts without a response yet: their data may not have arrived.
    uint32_t outstanding() const { return addresses_.outstanding(); }

    void drive(uint64_t now) {
        addresses_.drive();
        bandwidth_.clock();
        *pins_.ready = filling_ != addresses_.tail() && bandwidth_.beat() && !data_stalls_();
        if (shown_) return;
        *pins_.resp_valid = 0;
        if (addresses_.head() == filling_) return;
        const Burst& burst = addresses_.front();
        if (now < burst.due || response_stalls_()) return;
        shown_ = true;
        *pins_.resp_valid = 1;
        *pins_.resp = errors_.answer(burst.host);
        if (pins_.id) *pins_.id = burst.id;
    }

    bool sample(uint64_t now, const Memory& memory, hw_emu_traffic& traffic) {
        bool moved = addresses_.sample(now, memory);
        traffic.write_bursts += moved;
        if (*pins_.valid) {
            moved |= sample_data(now, traffic);
        } else if (waiting_) {
            fail("%s: wvalid fell before wready", addresses_.port());
        }
        if (shown_ && *pins_.resp_ready) {
            shown_ = false;
            traffic.write_errors += *pins_.resp != OKAY;
            addresses_.pop();
            moved = true;
        }
        return moved;
    }

  private:
    bool sample_data(uint64_t now, hw_emu_traffic& traffic) {
        if (waiting_ && (*pins_.last != held_last_ || strobes() != held_strobes_ ||
                         std::memcmp(pins_.data, held_.data(), bytes_) != 0)) {
            fail("%s: the data changed while wvalid waited for wready", addresses_.port());
        }
        if (!*pins_.ready) {
            if (!waiting_) {
                waiting_ = true;
                held_last_ = *pins_.last;
                held_strobes_ = strobes();
                std::memcpy(held_.data(), pins_.data, bytes_);
            }
            return false;
        }
        waiting_ = false;
        bandwidth_.spend();
        traffic.write_beats++;
        Burst& burst = addresses_.at(filling_);
        const bool last = burst.done + 1 == burst.beats;
        if (*pins_.last != last) {
            fail("%s: wlast %s in beat %u of a burst of %u", addresses_.port(), last ? "is missing" : "comes",
                 burst.done + 1, burst.beats);
        }
        if (burst.host) store(burst.host + static_cast<size_t>(burst.done) * bytes_);
        burst.done++;
        if (last) {
            burst.due = now + addresses_.latency();
            filling_++;
        }
        return true;
    }

    void store(uint8_t* target) const {
        const uint64_t strobe = strobes();
        if (strobe == (bytes_ == 64 ? ~0ull : (1ull << bytes_) - 1)) {
            std::memcpy(target, pins_.data, bytes_);
            return;
        }
        for (unsigned i = 0; i < bytes_; i++) {
            if (strobe >> i & 1) target[i] = pins_.data[i];
        }
    }

    uint64_t strobes() const {
        uint64_t value = 0;
        std::memcpy(&value, pins_.strobe, (bytes_ + 7) / 8);
        return value;
    }

    WritePins pins_;
    unsigned bytes_;
    AddressChannel addresses_;  // its head: the next to get a response
    uint32_t filling_ = 0;      // number of the burst whose data comes next
    Bandwidth bandwidth_;
    Stalls data_stalls_, response_stalls_;
    Errors errors_;
    bool shown_ = false, waiting_ = false;
    uint8_t held_last_ = 0;
    uint64_t held_strobes_ = 0;
    std::vector<uint8_t> held_;
};

}  // namespace hw_emu
