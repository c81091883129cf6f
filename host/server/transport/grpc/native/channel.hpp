// The bytes of one connection, as they are or encrypted by TLS. Its socket never blocks.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

struct ssl_ctx_st;
struct ssl_st;

namespace headrace {

#ifdef HEADRACE_TLS
constexpr bool HAS_TLS = true;
#else
constexpr bool HAS_TLS = false;
#endif

// The server's certificates and key, and the rules of its handshakes. Throws std::invalid_argument.
class TlsContext {
  public:
    TlsContext(const std::string& certificates, const std::string& key);
    ~TlsContext();
    TlsContext(const TlsContext&) = delete;
    TlsContext& operator=(const TlsContext&) = delete;

    ssl_ctx_st* get() const { return context_; }

  private:
    ssl_ctx_st* context_ = nullptr;
};

class Channel {
  public:
    Channel(int fd, const TlsContext* tls);  // the owner closes `fd`; `tls` may be null
    ~Channel();
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;

    // Goes on with the handshake, if it has not ended. Returns false if it failed.
    bool shake_hands();
    bool is_open() const { return open_; }

    // Returns how many bytes came, or went. 0 of `read` is the end. -1 has its reason in errno, as the system has it:
    // EAGAIN if there is nothing to read, or no room to write.
    ssize_t read(iovec* into, int count);
    ssize_t write(const iovec* from, int count, std::size_t size);

    // Tells the client that nothing more comes.
    void end();

    // Bytes that have been decrypted and not read. The socket does not report them.
    std::size_t pending() const;

    bool needs_write() const { return needs_write_; }  // the last step waits for room to write

    const int fd;

  private:
    ssize_t write_record(const iovec* from, int count);
    ssize_t failed(int result, bool writes);

    ssl_st* tls_ = nullptr;
    bool open_ = true, needs_write_ = false;
};

}  // namespace headrace
