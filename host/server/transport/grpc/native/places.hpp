// Slots in the memory that the server shares with its workers. The front receives the tensors of requests there.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace headrace {

// Where the slots of one model lie in a file: slot n has its input of `bytes` bytes at `offset` + n * `stride`.
struct SlotRange {
    int fd;
    std::size_t offset, stride, bytes, count;
};

// Some slots of one model. It has its own mapping of the file, so each slot keeps its bytes until it is given back.
class Pool {
  public:
    Pool(const SlotRange& range, std::vector<std::uint32_t> free)
        : id(next_id()), bytes(range.bytes), stride_(range.stride), length_(range.stride * range.count),
          lent_(free.size()), free_(std::move(free)) {
        void* mapped = ::mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_SHARED, range.fd,
                              static_cast<off_t>(range.offset));
        if (mapped == MAP_FAILED) throw std::system_error(errno, std::generic_category());
        base_ = static_cast<std::uint8_t*>(mapped);
    }
    ~Pool() {
        if (removes_) ::madvise(base_, length_, MADV_REMOVE);
        ::munmap(base_, length_);
    }
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    std::uint8_t* at(std::uint32_t slot) const { return base_ + slot * stride_; }

    // Returns whether there was a free slot.
    bool take(std::uint32_t& slot) {
        std::lock_guard lock(mutex_);
        if (free_.empty() || ended_) return false;
        slot = free_.back();
        free_.pop_back();
        return true;
    }
    void give(std::uint32_t slot) {
        std::lock_guard lock(mutex_);
        free_.push_back(slot);
    }

    // Lends no further slot. Returns whether a message still uses one: then the last of them frees the memory.
    bool end() {
        std::lock_guard lock(mutex_);
        ended_ = true;
        removes_ = free_.size() < lent_;
        return removes_;
    }

    const int id;
    const std::size_t bytes;

  private:
    static int next_id() {
        static int last = 0;  // pools are made by Python's thread alone
        return ++last;
    }

    const std::size_t stride_, length_, lent_;
    std::uint8_t* base_ = nullptr;
    std::mutex mutex_;  // guards the three below
    std::vector<std::uint32_t> free_;
    bool ended_ = false, removes_ = false;
};

// A slot of a pool that holds, or receives, the tensor of one message.
struct Place {
    Place(std::shared_ptr<Pool> pool, std::uint32_t slot) : pool(std::move(pool)), slot(slot) {}
    ~Place() { pool->give(slot); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    std::uint8_t* data() const { return pool->at(slot); }

    const std::shared_ptr<Pool> pool;
    std::uint32_t slot;
};

}  // namespace headrace
