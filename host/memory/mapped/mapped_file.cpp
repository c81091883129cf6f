// The class `MappedFile` for Python: copies between buffers and a mapped file that its owner may make shorter.
//
// An access to a mapped page beyond the end of its file raises SIGBUS. The handler of this module leaves a copy of its
// own by a jump, and passes every other SIGBUS on. The jump crosses only the frame of `guarded_copy`, which owns
// nothing.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstddef>
#include <cstring>

namespace {

constexpr Py_ssize_t LONG_COPY = 1 << 20;  // a copy of more bytes lets other threads of Python run

// ---- the copy ----

struct Guard {
    const char* begin;  // the mapped bytes that the copy may touch
    const char* end;
    sigjmp_buf back;
};

// The initial-exec model needs no memory at the first use in a thread, so a signal handler may read it.
__attribute__((tls_model("initial-exec"))) thread_local Guard* volatile guard = nullptr;
struct sigaction previous;               // the action for all other SIGBUS
volatile sig_atomic_t passed_on = 0;     // the previous handler has been called, and the signal came again

void on_sigbus(int number, siginfo_t* info, void* context) {
    Guard* own = guard;
    const char* at = static_cast<const char*>(info->si_addr);
    if (own != nullptr && info->si_code > 0 && at >= own->begin && at < own->end) siglongjmp(own->back, 1);
    const bool is_handler = previous.sa_flags & SA_SIGINFO
                                ? previous.sa_sigaction != nullptr
                                : previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN;
    if (is_handler && !passed_on) {
        passed_on = 1;
        if (previous.sa_flags & SA_SIGINFO) {
            previous.sa_sigaction(number, info, context);
        } else {
            previous.sa_handler(number);
        }
        return;  // the instruction runs again, and its signal now ends the process
    }
    signal(number, SIG_DFL);
    if (info->si_code <= 0) raise(number);  // sent by a process: no instruction raises it again
}

// Makes on_sigbus the handler. Another module, such as faulthandler, may have taken its place since the last copy.
bool install_handler() {
    struct sigaction now;
    if (sigaction(SIGBUS, nullptr, &now) != 0) return false;
    if (now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_sigbus) return true;
    struct sigaction ours = {};
    ours.sa_sigaction = on_sigbus;
    ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;  // a jump out of the handler leaves the signal unblocked
    sigemptyset(&ours.sa_mask);
    previous = now;
    passed_on = 0;
    return sigaction(SIGBUS, &ours, nullptr) == 0;
}

// Copies `size` bytes. `mapped` is the side that lies in the mapping. Returns false if its file has no such page.
__attribute__((noinline)) bool guarded_copy(char* to, const char* from, const char* mapped, size_t size) {
    Guard own;
    own.begin = mapped;
    own.end = mapped + size;
    if (sigsetjmp(own.back, 0) != 0) {
        guard = nullptr;
        return false;
    }
    guard = &own;
    memcpy(to, from, size);
    __asm__ volatile("" ::: "memory");  // the copy ends before the guard does
    guard = nullptr;
    return true;
}

// ---- MappedFile ----

struct MappedFile {
    PyObject_HEAD
    char* memory;
    Py_ssize_t size;
    int file;
    int copies;   // that run now, while other threads run
    bool closed;  // no further copy begins
};

PyObject* mapped_new(PyTypeObject* type, PyObject* arguments, PyObject*) {
    int file;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(arguments, "in", &file, &size)) return nullptr;
    if (size < 1) return PyErr_Format(PyExc_ValueError, "a mapping of %zd bytes; give 1 or more", size);
    void* memory = mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) return PyErr_SetFromErrno(PyExc_OSError);
    auto* self = reinterpret_cast<MappedFile*>(type->tp_alloc(type, 0));
    if (self == nullptr) {
        munmap(memory, static_cast<size_t>(size));
        return nullptr;
    }
    self->memory = static_cast<char*>(memory);
    self->size = size;
    self->file = file;
    return reinterpret_cast<PyObject*>(self);
}

void unmap(MappedFile& self) {
    if (self.memory != nullptr) munmap(self.memory, static_cast<size_t>(self.size));
    self.memory = nullptr;
}

void mapped_dealloc(PyObject* self) {
    unmap(*reinterpret_cast<MappedFile*>(self));
    PyTypeObject* type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

PyObject* mapped_close(PyObject* object, PyObject*) {
    auto& self = *reinterpret_cast<MappedFile*>(object);
    self.closed = true;
    if (self.copies == 0) unmap(self);
    Py_RETURN_NONE;
}

PyObject* copied(MappedFile& self, PyObject* const* arguments, Py_ssize_t count, bool reads) {
    if (count != 2) return PyErr_Format(PyExc_TypeError, "give a buffer and an offset");
    const Py_ssize_t offset = PyLong_AsSsize_t(arguments[1]);
    if (offset == -1 && PyErr_Occurred() != nullptr) return nullptr;
    Py_buffer buffer;
    if (PyObject_GetBuffer(arguments[0], &buffer, reads ? PyBUF_WRITABLE : PyBUF_SIMPLE) != 0) return nullptr;
    if (self.closed || offset < 0 || buffer.len > self.size || offset > self.size - buffer.len) {
        PyBuffer_Release(&buffer);
        return PyErr_Format(PyExc_ValueError, "the bytes lie outside the mapping, or it is closed");
    }
    struct stat status;
    bool done = fstat(self.file, &status) == 0 && status.st_size >= offset + buffer.len && install_handler();
    if (done && buffer.len > 0) {
        auto* own = static_cast<char*>(buffer.buf);
        char* mapped = self.memory + offset;
        const auto size = static_cast<size_t>(buffer.len);
        PyThreadState* others = nullptr;
        self.copies++;
        if (buffer.len > LONG_COPY) others = PyEval_SaveThread();
        done = reads ? guarded_copy(own, mapped, mapped, size) : guarded_copy(mapped, own, mapped, size);
        if (others != nullptr) PyEval_RestoreThread(others);
        if (--self.copies == 0 && self.closed) unmap(self);
    }
    PyBuffer_Release(&buffer);
    return PyBool_FromLong(done);
}

PyObject* mapped_read_into(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    return copied(*reinterpret_cast<MappedFile*>(self), arguments, count, true);
}

PyObject* mapped_write(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    return copied(*reinterpret_cast<MappedFile*>(self), arguments, count, false);
}

PyMethodDef mapped_methods[] = {
    {"read_into", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(mapped_read_into)), METH_FASTCALL,
     "Fill a contiguous buffer with the bytes from an offset on. Return False if the file does not have them."},
    {"write", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(mapped_write)), METH_FASTCALL,
     "Write a contiguous buffer at an offset. Return False if the file does not have these bytes."},
    {"close", mapped_close, METH_NOARGS, "Begin no further copy. The file is unmapped when those that run have ended."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot mapped_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(mapped_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(mapped_dealloc)},
    {Py_tp_methods, mapped_methods},
    {Py_tp_doc, const_cast<char*>("MappedFile(file, size): the first `size` bytes of an open file, mapped.")},
    {0, nullptr},
};

PyType_Spec mapped_spec = {
    "headrace.host.memory.mapped.mapped_file.MappedFile",
    sizeof(MappedFile),
    0,
    Py_TPFLAGS_DEFAULT,
    mapped_slots,
};

PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    "mapped_file",
    "Copies between buffers and mapped files that their owners may make shorter.",
    -1,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
};

}  // namespace

PyMODINIT_FUNC PyInit_mapped_file() {
    PyObject* made = PyModule_Create(&module);
    if (made == nullptr) return nullptr;
    PyObject* type = PyType_FromSpec(&mapped_spec);
    if (type == nullptr || PyModule_AddObjectRef(made, "MappedFile", type) != 0) {
        Py_XDECREF(type);
        Py_DECREF(made);
        return nullptr;
    }
    Py_DECREF(type);
    return made;
}
