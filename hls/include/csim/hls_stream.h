// hls::stream for g++ builds; on a Vitis machine the vendor's own header is used and this folder is not on the path.
//
// C simulation runs the processes of a dataflow region one after the other, so a stream holds whatever one process
// wrote until the next reads it, and DEPTH bounds only the hardware FIFO. Reading an empty stream would hang the
// hardware; here it ends the process with a message, so that a test sees it.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

namespace hls {

template <typename T, int DEPTH = 2>
class stream {
  public:
    stream() = default;
    explicit stream(const char* name) : name_(name) {}
    stream(const stream&) = delete;
    stream& operator=(const stream&) = delete;

    void write(const T& value) { items_.push_back(value); }
    bool write_nb(const T& value) {
        items_.push_back(value);
        return true;
    }

    T read() {
        if (empty()) {
            std::fprintf(stderr, "hls::stream '%s': read while empty, hardware would hang\n", name_);
            std::abort();
        }
        T value = items_[head_++];
        if (head_ == items_.size()) {  // drained: reuse the storage
            items_.clear();
            head_ = 0;
        } else if (head_ >= CHUNK && head_ * 2 >= items_.size()) {  // amortised O(1), bounds the memory to twice the fill
            items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(head_));
            head_ = 0;
        }
        return value;
    }
    void read(T& value) { value = read(); }
    bool read_nb(T& value) {
        if (empty()) return false;
        value = read();
        return true;
    }

    bool empty() const { return head_ == items_.size(); }
    bool full() const { return false; }
    std::size_t size() const { return items_.size() - head_; }

    stream& operator<<(const T& value) {
        write(value);
        return *this;
    }
    stream& operator>>(T& value) {
        value = read();
        return *this;
    }

  private:
    static constexpr std::size_t CHUNK = 1 << 16;
    const char* name_ = "unnamed";
    std::vector<T> items_;
    std::size_t head_ = 0;
};

}  // namespace hls
