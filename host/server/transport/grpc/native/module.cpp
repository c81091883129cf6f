// The module for Python: `Front`, `Message`, a buffer with the bytes of one message, and `Place`, a slot with a tensor.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <unistd.h>

#include <stdexcept>
#include <system_error>
#include <utility>

#include "front.hpp"

namespace {

using headrace::Command;
using headrace::Event;
using headrace::Front;
using headrace::Limits;
using headrace::Message;
using headrace::Parts;
using headrace::Place;
using headrace::TlsContext;

constexpr Py_ssize_t COPIED = 4096;  // an answer of up to this size is copied, and its objects are free at once

// ---- Message ----

struct MessageObject {
    PyObject_HEAD
    Message* message;
};

void message_dealloc(PyObject* self) {
    delete reinterpret_cast<MessageObject*>(self)->message;
    PyTypeObject* type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

int message_buffer(PyObject* self, Py_buffer* view, int flags) {
    Message& message = *reinterpret_cast<MessageObject*>(self)->message;
    static char nothing = 0;
    void* data = message.data != nullptr ? static_cast<void*>(message.data) : &nothing;
    std::size_t size = message.head > 0 ? message.said : message.size;
    return PyBuffer_FillInfo(view, self, data, static_cast<Py_ssize_t>(size), 1, flags);
}

PyType_Slot message_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(message_dealloc)},
    {Py_bf_getbuffer, reinterpret_cast<void*>(message_buffer)},
    {Py_tp_doc, const_cast<char*>("The bytes of one message, as a buffer.")},
    {0, nullptr},
};

PyType_Spec message_spec = {
    "headrace.host.server.transport.grpc.native.http2.Message",
    sizeof(MessageObject),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    message_slots,
};

PyTypeObject* message_type = nullptr;

PyObject* wrapped(std::unique_ptr<Message> message) {
    auto* object = PyObject_New(MessageObject, message_type);
    if (object == nullptr) return nullptr;
    object->message = message.release();
    return reinterpret_cast<PyObject*>(object);
}

// ---- Place ----

struct PlaceObject {
    PyObject_HEAD
    Place* place;
};

Place& place_of(PyObject* self) { return *reinterpret_cast<PlaceObject*>(self)->place; }

void place_dealloc(PyObject* self) {
    delete reinterpret_cast<PlaceObject*>(self)->place;
    PyTypeObject* type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

int place_buffer(PyObject* self, Py_buffer* view, int flags) {
    Place& place = place_of(self);
    return PyBuffer_FillInfo(view, self, place.data(), static_cast<Py_ssize_t>(place.pool->bytes), 1, flags);
}

PyObject* place_exchange(PyObject* self, PyObject* given) {
    unsigned long slot = PyLong_AsUnsignedLong(given);
    if (PyErr_Occurred() != nullptr) return nullptr;
    return PyLong_FromUnsignedLong(std::exchange(place_of(self).slot, static_cast<std::uint32_t>(slot)));
}

PyObject* place_pool(PyObject* self, void*) { return PyLong_FromLong(place_of(self).pool->id); }

PyMethodDef place_methods[] = {
    {"exchange", place_exchange, METH_O, "Put another slot in this place. Return the slot with the tensor."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef place_properties[] = {
    {"pool", place_pool, nullptr, "The number that `Front.lend` returned.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot place_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(place_dealloc)},
    {Py_bf_getbuffer, reinterpret_cast<void*>(place_buffer)},
    {Py_tp_methods, place_methods},
    {Py_tp_getset, place_properties},
    {Py_tp_doc, const_cast<char*>("A slot with the tensor of one message, as a buffer. It is given back at the end.")},
    {0, nullptr},
};

PyType_Spec place_spec = {
    "headrace.host.server.transport.grpc.native.http2.Place",
    sizeof(PlaceObject),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    place_slots,
};

PyTypeObject* place_type = nullptr;

PyObject* wrapped(std::unique_ptr<Place> place) {
    auto* object = PyObject_New(PlaceObject, place_type);
    if (object == nullptr) return nullptr;
    object->place = place.release();
    return reinterpret_cast<PyObject*>(object);
}

// ---- Front ----

struct FrontObject {
    PyObject_HEAD
    Front* front;
};

Front& front_of(PyObject* self) { return *reinterpret_cast<FrontObject*>(self)->front; }

void free_parts(Parts* parts) {
    for (Py_buffer& view : parts->views) PyBuffer_Release(&view);
    delete parts;
}

void free_released(Front& front) {
    for (Parts* parts : front.released()) free_parts(parts);
}

PyObject* front_new(PyTypeObject* type, PyObject* arguments, PyObject* named) {
    static const char* names[] = {"listener", "streams", "placed", "early", "body", "bodies", "head", "connections", "client_s",
                                  "idle_s", "bytes_per_s", "certificate", "key", nullptr};
    int listener = -1, early = 0;
    PyObject* streams = nullptr;
    const char *placed = "", *certificate = nullptr, *key = nullptr;
    Py_ssize_t certificate_size = 0, key_size = 0;
    Py_ssize_t body = 0, bodies = 0, head = 0, connections = 0;
    Limits limits{};
    if (!PyArg_ParseTupleAndKeywords(arguments, named, "$iO!spnnnndddz#z#", const_cast<char**>(names), &listener,
                                     &PyTuple_Type, &streams, &placed, &early, &body, &bodies, &head, &connections,
                                     &limits.client_s, &limits.idle_s, &limits.bytes_per_s, &certificate,
                                     &certificate_size, &key, &key_size)) {
        return nullptr;
    }
    limits.body = static_cast<std::size_t>(body);
    limits.bodies = static_cast<std::size_t>(bodies);
    limits.head = static_cast<std::size_t>(head);
    limits.connections = static_cast<std::size_t>(connections);
    std::unordered_set<std::string> paths;
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(streams); ++at) {
        const char* path = PyUnicode_AsUTF8(PyTuple_GET_ITEM(streams, at));
        if (path == nullptr) return nullptr;
        paths.insert(path);
    }
    PyObject* self = type->tp_alloc(type, 0);
    if (self == nullptr) return nullptr;
    try {
        std::unique_ptr<TlsContext> tls;
        if (certificate != nullptr && key != nullptr) {
            tls = std::make_unique<TlsContext>(std::string(certificate, static_cast<std::size_t>(certificate_size)),
                                               std::string(key, static_cast<std::size_t>(key_size)));
        }
        reinterpret_cast<FrontObject*>(self)->front =
            new Front(listener, limits, std::move(paths), placed, early != 0, std::move(tls));
    } catch (const std::invalid_argument& error) {
        ::close(listener);
        Py_DECREF(self);
        PyErr_SetString(PyExc_ValueError, error.what());
        return nullptr;
    } catch (const std::system_error& error) {
        errno = error.code().value();
        Py_DECREF(self);
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return self;
}

void close_front(Front& front) {
    Py_BEGIN_ALLOW_THREADS
    front.close();
    Py_END_ALLOW_THREADS
    free_released(front);
}

void front_dealloc(PyObject* self) {
    Front* front = reinterpret_cast<FrontObject*>(self)->front;
    if (front != nullptr) {
        close_front(*front);
        delete front;
    }
    PyTypeObject* type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

PyObject* front_fileno(PyObject* self, PyObject*) { return PyLong_FromLong(front_of(self).ready_fd()); }

PyObject* bytes_of(const std::string& text) {
    return PyUnicode_DecodeLatin1(text.data(), static_cast<Py_ssize_t>(text.size()), nullptr);
}

// Returns (path, peer, authorization, traceparent, encoding, timeout_s). A client chose the bytes of all texts.
PyObject* head_of(const headrace::Head& head) {
    return Py_BuildValue("(NNNNNd)", bytes_of(head.path), bytes_of(head.peer), bytes_of(head.authorization),
                         bytes_of(head.traceparent), bytes_of(head.encoding), head.timeout_s);
}

PyObject* none() {
    Py_INCREF(Py_None);
    return Py_None;
}

PyObject* front_events(PyObject* self, PyObject*) {
    Front& front = front_of(self);
    std::vector<Event> events = front.events();
    free_released(front);
    PyObject* list = PyList_New(static_cast<Py_ssize_t>(events.size()));
    if (list == nullptr) return nullptr;
    Py_ssize_t at = 0;
    for (Event& event : events) {
        PyObject* head = event.head != nullptr ? head_of(*event.head) : none();
        bool placed = event.message != nullptr && event.message->place != nullptr;
        PyObject* place = placed ? wrapped(std::move(event.message->place)) : none();
        PyObject* message = event.message != nullptr ? wrapped(std::move(event.message)) : none();
        PyObject* tuple = head == nullptr || message == nullptr || place == nullptr
                              ? nullptr
                              : Py_BuildValue("(iKNNNi)", static_cast<int>(event.kind),
                                              static_cast<unsigned long long>(event.call), head, message, place,
                                              event.number);
        if (tuple == nullptr) {
            Py_DECREF(list);
            return nullptr;
        }
        PyList_SET_ITEM(list, at++, tuple);
    }
    return list;
}

std::unique_ptr<Parts> parts_of(PyObject* given) {
    PyObject* items = PySequence_Fast(given, "the parts of an answer are a sequence of buffers");
    if (items == nullptr) return nullptr;
    auto parts = std::make_unique<Parts>();
    Py_ssize_t count = PySequence_Fast_GET_SIZE(items);
    parts->views.reserve(static_cast<std::size_t>(count));
    bool failed = false;
    for (Py_ssize_t at = 0; at < count && !failed; ++at) {
        Py_buffer view;
        failed = PyObject_GetBuffer(PySequence_Fast_GET_ITEM(items, at), &view, PyBUF_SIMPLE) < 0;
        if (!failed) {
            parts->views.push_back(view);
            parts->size += static_cast<std::size_t>(view.len);
        }
    }
    Py_DECREF(items);
    if (failed) {
        free_parts(parts.release());
        return nullptr;
    }
    bool copies = parts->size <= COPIED;
    for (Py_buffer& view : parts->views) {
        const auto* data = static_cast<const std::uint8_t*>(view.buf);
        auto size = static_cast<std::size_t>(view.len);
        if (copies) {
            parts->copied.append(reinterpret_cast<const char*>(data), size);
            PyBuffer_Release(&view);
        } else if (size > 0) {
            parts->slices.emplace_back(data, size);
        }
    }
    if (copies) {
        parts->views.clear();
        if (parts->size > 0) {
            parts->slices.emplace_back(reinterpret_cast<const std::uint8_t*>(parts->copied.data()), parts->size);
        }
    }
    return parts;
}

PyObject* front_answer(PyObject* self, PyObject* arguments) {
    unsigned long long call = 0;
    PyObject* given = nullptr;
    int last = 0, status = 0;
    const char* text = "";
    Py_ssize_t size = 0;
    if (!PyArg_ParseTuple(arguments, "KO|pis#", &call, &given, &last, &status, &text, &size)) return nullptr;
    Front& front = front_of(self);
    Command command{Command::ANSWER, call};
    if (given != Py_None) {
        auto parts = parts_of(given);
        if (parts == nullptr) return nullptr;
        command.parts = front.share(std::move(parts));
    }
    command.last = last != 0;
    command.status = status;
    command.text.assign(text, static_cast<std::size_t>(size));
    front.tell(std::move(command));
    free_released(front);
    return none();
}

PyObject* front_lend(PyObject* self, PyObject* arguments) {
    const char* model = nullptr;
    Py_ssize_t size = 0, offset = 0, stride = 0, bytes = 0, count = 0;
    headrace::SlotRange range{};
    PyObject* given = nullptr;
    if (!PyArg_ParseTuple(arguments, "s#innnnO!", &model, &size, &range.fd, &offset, &stride, &bytes, &count,
                          &PyTuple_Type, &given)) {
        return nullptr;
    }
    range.offset = static_cast<std::size_t>(offset);
    range.stride = static_cast<std::size_t>(stride);
    range.bytes = static_cast<std::size_t>(bytes);
    range.count = static_cast<std::size_t>(count);
    std::vector<std::uint32_t> slots;
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(given); ++at) {
        slots.push_back(static_cast<std::uint32_t>(PyLong_AsUnsignedLong(PyTuple_GET_ITEM(given, at))));
    }
    if (PyErr_Occurred() != nullptr) return nullptr;
    try {
        std::string name(model, static_cast<std::size_t>(size));
        return PyLong_FromLong(front_of(self).lend(name, range, std::move(slots)));
    } catch (const std::system_error& error) {
        errno = error.code().value();
        return PyErr_SetFromErrno(PyExc_OSError);
    }
}

PyObject* front_take_back(PyObject* self, PyObject* pool) {
    long id = PyLong_AsLong(pool);
    if (PyErr_Occurred() != nullptr) return nullptr;
    return PyBool_FromLong(front_of(self).take_back(static_cast<int>(id)) ? 1 : 0);
}

PyObject* front_taken(PyObject* self, PyObject* call) {
    unsigned long long id = PyLong_AsUnsignedLongLong(call);
    if (PyErr_Occurred() != nullptr) return nullptr;
    front_of(self).tell({Command::TAKEN, id});
    return none();
}

PyObject* front_drain(PyObject* self, PyObject*) {
    front_of(self).tell({Command::DRAIN});
    return none();
}

PyObject* front_close(PyObject* self, PyObject*) {
    close_front(front_of(self));
    return none();
}

PyObject* front_held(PyObject* self, void*) { return PyLong_FromSize_t(front_of(self).memory->held); }

PyObject* front_calls(PyObject* self, void*) { return PyLong_FromSize_t(front_of(self).open_calls); }

PyMethodDef front_methods[] = {
    {"fileno", front_fileno, METH_NOARGS, "Return the descriptor that is readable when there are events."},
    {"events", front_events, METH_NOARGS, "Return the new events as tuples (kind, call, head, message, place, number)."},
    {"answer", front_answer, METH_VARARGS, "Send a message as buffers, or None. The last one has a status and a text."},
    {"lend", front_lend, METH_VARARGS,
     "Lend slots: model, file, offset, stride, bytes of the input, number of all slots, these slots. Return a number."},
    {"take_back", front_take_back, METH_O, "Lend no more of these slots. Return whether a message still uses one."},
    {"taken", front_taken, METH_O, "Note that a message of a stream was taken, so the client may send more."},
    {"drain", front_drain, METH_NOARGS, "Close the port, and tell clients to begin no further call."},
    {"close", front_close, METH_NOARGS, "Close all connections and end the thread."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef front_properties[] = {
    {"held", front_held, nullptr, "The bytes of all messages and answers in memory.", nullptr},
    {"calls", front_calls, nullptr, "The number of open calls.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot front_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(front_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(front_dealloc)},
    {Py_tp_methods, front_methods},
    {Py_tp_getset, front_properties},
    {Py_tp_doc, const_cast<char*>("Serve gRPC on a listening socket, in a thread of its own.")},
    {0, nullptr},
};

PyType_Spec front_spec = {
    "headrace.host.server.transport.grpc.native.http2.Front",
    sizeof(FrontObject),
    0,
    Py_TPFLAGS_DEFAULT,
    front_slots,
};

PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "http2", "gRPC's connections in a thread without Python.", -1, nullptr, nullptr, nullptr,
    nullptr, nullptr,
};

}  // namespace

PyMODINIT_FUNC PyInit_http2() {
    PyObject* made = PyModule_Create(&module);
    if (made == nullptr) return nullptr;
    message_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&message_spec));
    PyObject* front_type = PyType_FromSpec(&front_spec);
    place_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&place_spec));
    if (message_type == nullptr || place_type == nullptr || front_type == nullptr ||
        PyModule_AddObject(made, "Message", reinterpret_cast<PyObject*>(message_type)) < 0 ||
        PyModule_AddObject(made, "Place", reinterpret_cast<PyObject*>(place_type)) < 0 ||
        PyModule_AddObject(made, "Front", front_type) < 0 ||
        PyModule_AddObject(made, "HAS_TLS", PyBool_FromLong(headrace::HAS_TLS ? 1 : 0)) < 0) {
        Py_DECREF(made);
        return nullptr;
    }
    return made;
}
