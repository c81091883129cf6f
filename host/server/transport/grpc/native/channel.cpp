#include "channel.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <stdexcept>

#ifdef HEADRACE_TLS
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#endif

namespace headrace {

#ifdef HEADRACE_TLS

namespace {

constexpr std::size_t RECORD = 16 << 10;  // bytes of TLS's longest record
constexpr unsigned char H2[] = {2, 'h', '2'};
// Suites of TLS 1.2 that RFC 9113, appendix A, does not forbid. Those of TLS 1.3 are all allowed.
constexpr const char* SUITES = "ECDHE+AESGCM:ECDHE+CHACHA20";

// Chooses h2. Without it the handshake fails.
int choose_protocol(SSL*, const unsigned char** chosen, unsigned char* size, const unsigned char* offered,
                    unsigned offered_size, void*) {
    unsigned char* found = nullptr;
    if (SSL_select_next_proto(&found, size, H2, sizeof H2, offered, offered_size) != OPENSSL_NPN_NEGOTIATED) {
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    }
    *chosen = found;
    return SSL_TLSEXT_ERR_OK;
}

bool is_h2(SSL* tls) {
    const unsigned char* chosen = nullptr;
    unsigned size = 0;
    SSL_get0_alpn_selected(tls, &chosen, &size);
    return size == H2[0] && std::memcmp(chosen, H2 + 1, size) == 0;
}

// Frees what it holds at the end of a block.
template <typename Kind, void (*Free)(Kind*)>
struct Owned {
    explicit Owned(Kind* kind) : kind(kind) {}
    ~Owned() { Free(kind); }
    Owned(const Owned&) = delete;
    Owned& operator=(const Owned&) = delete;
    Kind* const kind;
};

void free_bio(BIO* bio) { BIO_free(bio); }

int no_password(char*, int, int, void*) { return 0; }

bool use_certificates(SSL_CTX* context, const std::string& text) {
    Owned<BIO, free_bio> bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
    Owned<X509, X509_free> own(PEM_read_bio_X509_AUX(bio.kind, nullptr, no_password, nullptr));
    if (own.kind == nullptr || SSL_CTX_use_certificate(context, own.kind) != 1) return false;
    while (X509* next = PEM_read_bio_X509(bio.kind, nullptr, no_password, nullptr)) {
        if (SSL_CTX_add0_chain_cert(context, next) != 1) {
            X509_free(next);
            return false;
        }
    }
    return true;
}

bool use_key(SSL_CTX* context, const std::string& text) {
    Owned<BIO, free_bio> bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
    Owned<EVP_PKEY, EVP_PKEY_free> key(PEM_read_bio_PrivateKey(bio.kind, nullptr, no_password, nullptr));
    return key.kind != nullptr && SSL_CTX_use_PrivateKey(context, key.kind) == 1 &&
           SSL_CTX_check_private_key(context) == 1;
}

}  // namespace

TlsContext::TlsContext(const std::string& certificates, const std::string& key)
    : context_(SSL_CTX_new(TLS_server_method())) {
    if (context_ == nullptr) throw std::bad_alloc();
    SSL_CTX_set_min_proto_version(context_, TLS1_2_VERSION);
    SSL_CTX_set_options(context_, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_mode(context_, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                   SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_cache_mode(context_, SSL_SESS_CACHE_OFF);  // sessions lie with their clients, in tickets
    SSL_CTX_set_cipher_list(context_, SUITES);
    SSL_CTX_set_alpn_select_cb(context_, choose_protocol, nullptr);
    bool usable = use_certificates(context_, certificates) && use_key(context_, key);
    ERR_clear_error();  // the end of the list of certificates is an error, too
    if (!usable) {
        SSL_CTX_free(context_);
        throw std::invalid_argument("the certificate and the key are not PEM, or do not go together");
    }
}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

Channel::Channel(int fd, const TlsContext* tls) : fd(fd), open_(tls == nullptr) {
    if (tls == nullptr) return;
    tls_ = SSL_new(tls->get());
    if (tls_ == nullptr || SSL_set_fd(tls_, fd) != 1) {
        SSL_free(tls_);
        throw std::bad_alloc();
    }
    SSL_set_accept_state(tls_);
}

Channel::~Channel() { SSL_free(tls_); }

void Channel::end() {
    if (tls_ == nullptr || !open_) return;
    ERR_clear_error();
    SSL_shutdown(tls_);
    ERR_clear_error();
}

bool Channel::shake_hands() {
    if (open_) return true;
    ERR_clear_error();
    needs_write_ = false;
    int result = SSL_do_handshake(tls_);
    if (result == 1) return open_ = is_h2(tls_);
    if (failed(result, false) < 0) return true;
    char rest[RECORD];  // with unread bytes, the system would reset the connection and drop the alert
    for (int reads = 0; reads < 4 && ::recv(fd, rest, sizeof rest, MSG_DONTWAIT) > 0; ++reads) {
    }
    return false;
}

// Returns what a call that read or wrote nothing stands for.
ssize_t Channel::failed(int result, bool writes) {
    switch (SSL_get_error(tls_, result)) {
        case SSL_ERROR_WANT_WRITE: needs_write_ = true; [[fallthrough]];
        case SSL_ERROR_WANT_READ: errno = EAGAIN; return -1;
        case SSL_ERROR_ZERO_RETURN: break;
        default: open_ = false;  // nothing may be sent after a fatal error
    }
    if (!writes) return 0;
    errno = EPIPE;
    return -1;
}

ssize_t Channel::read(iovec* into, int count) {
    if (tls_ == nullptr) return ::readv(fd, into, count);
    std::size_t taken = 0;
    ERR_clear_error();
    for (int at = 0; at < count; ++at) {
        for (std::size_t filled = 0; filled < into[at].iov_len;) {
            auto* place = static_cast<char*>(into[at].iov_base) + filled;
            int got = SSL_read(tls_, place, static_cast<int>(std::min(into[at].iov_len - filled, RECORD)));
            if (got <= 0) return taken > 0 ? static_cast<ssize_t>(taken) : failed(got, false);
            filled += static_cast<std::size_t>(got);
            taken += static_cast<std::size_t>(got);
        }
    }
    return static_cast<ssize_t>(taken);
}

// Gathers short pieces, because each record costs a call of the system and some bytes of its own.
ssize_t Channel::write_record(const iovec* from, int count) {
    static thread_local unsigned char record[RECORD];
    needs_write_ = false;
    std::size_t gathered = 0;
    for (int at = 0; at < count && gathered < RECORD; ++at) {
        std::size_t some = std::min(from[at].iov_len, RECORD - gathered);
        std::memcpy(record + gathered, from[at].iov_base, some);
        gathered += some;
    }
    ERR_clear_error();
    int sent = SSL_write(tls_, record, static_cast<int>(gathered));
    return sent > 0 ? sent : failed(sent, true);
}

std::size_t Channel::pending() const { return tls_ == nullptr ? 0 : static_cast<std::size_t>(SSL_pending(tls_)); }

#else

TlsContext::TlsContext(const std::string&, const std::string&) { throw std::invalid_argument("built without TLS"); }
TlsContext::~TlsContext() = default;

Channel::Channel(int fd, const TlsContext*) : fd(fd) {}
Channel::~Channel() = default;
void Channel::end() {}
bool Channel::shake_hands() { return true; }
ssize_t Channel::read(iovec* into, int count) { return ::readv(fd, into, count); }
ssize_t Channel::write_record(const iovec*, int) { return -1; }
std::size_t Channel::pending() const { return 0; }

#endif

ssize_t Channel::write(const iovec* from, int count, std::size_t size) {
    if (tls_ != nullptr) return write_record(from, count);
    msghdr header{};
    header.msg_iov = const_cast<iovec*>(from);
    header.msg_iovlen = static_cast<std::size_t>(count);
    ssize_t sent = ::sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    needs_write_ = sent < 0 ? errno == EAGAIN || errno == EWOULDBLOCK : static_cast<std::size_t>(sent) < size;
    return sent;
}

}  // namespace headrace
