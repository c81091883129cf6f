// The Python module of XRT 2.13, which Debian leaves out, over the C++ headers of its libxrt-dev: what surfaces/2.13.txt
// lists, but for callbacks, which Python can give none of, and the constructor of an axlf, which it cannot make.

#include <experimental/xrt_xclbin.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <xrt/xrt_bo.h>
#include <xrt/xrt_device.h>
#include <xrt/xrt_kernel.h>

#include <string>

namespace py = pybind11;
using Info = xrt::info::device;

template <Info Key>
std::string told(const xrt::device& device) {
    const auto value = device.get_info<Key>();
    if constexpr (std::is_same_v<decltype(value), const std::string>)
        return value;
    else if constexpr (std::is_same_v<decltype(value), const xrt::uuid>)
        return value.to_string();
    else
        return std::to_string(value);
}

// As pyxrt's: what cannot be set is passed over.
xrt::run call(const xrt::kernel& kernel, const py::args& values) {
    xrt::run run(kernel);
    for (size_t index = 0; index < values.size(); index++) {
        try {
            if (py::isinstance<xrt::bo>(values[index]))
                run.set_arg(static_cast<int>(index), values[index].cast<xrt::bo>());
            else
                run.set_arg(static_cast<int>(index), values[index].cast<int>());
        } catch (const std::exception&) {
        }
    }
    run.start();
    return run;
}

PYBIND11_MODULE(pyxrt, m) {
    m.attr("XCL_BO_FLAGS_NONE") = 0;
#define VALUE(name) value(#name, name)
    py::enum_<xclBOSyncDirection>(m, "xclBOSyncDirection")
        .VALUE(XCL_BO_SYNC_BO_TO_DEVICE)
        .VALUE(XCL_BO_SYNC_BO_FROM_DEVICE)
        .VALUE(XCL_BO_SYNC_BO_GMIO_TO_AIE)
        .VALUE(XCL_BO_SYNC_BO_AIE_TO_GMIO);
    py::enum_<ert_cmd_state>(m, "ert_cmd_state")
        .VALUE(ERT_CMD_STATE_NEW)
        .VALUE(ERT_CMD_STATE_QUEUED)
        .VALUE(ERT_CMD_STATE_COMPLETED)
        .VALUE(ERT_CMD_STATE_ERROR)
        .VALUE(ERT_CMD_STATE_ABORT)
        .VALUE(ERT_CMD_STATE_SUBMITTED)
        .VALUE(ERT_CMD_STATE_TIMEOUT)
        .VALUE(ERT_CMD_STATE_NORESPONSE)
        .VALUE(ERT_CMD_STATE_SKERROR)
        .VALUE(ERT_CMD_STATE_SKCRASHED);

    py::enum_<Info> info(m, "xrt_info_device");
    using Teller = std::string (*)(const xrt::device&);
    static std::map<Info, Teller> tellers;
#define KEY(name) \
    info.value(#name, Info::name); \
    tellers[Info::name] = told<Info::name>
    KEY(bdf);
    KEY(interface_uuid);
    KEY(kdma);
    KEY(max_clock_frequency_mhz);
    KEY(m2m);
    KEY(name);
    KEY(nodma);
    KEY(offline);
    KEY(electrical);
    KEY(thermal);
    KEY(mechanical);
    KEY(memory);
    KEY(platform);
    KEY(pcie_info);
    KEY(host);
    KEY(dynamic_regions);
    KEY(vmr);

    py::class_<xrt::uuid>(m, "uuid").def(py::init<char*>()).def("to_string", &xrt::uuid::to_string);

    py::class_<xrt::xclbin> xclbin(m, "xclbin");
    py::class_<xrt::xclbin::ip>(xclbin, "xclbinip").def(py::init<>()).def("get_name", &xrt::xclbin::ip::get_name);
    py::class_<xrt::xclbin::kernel>(xclbin, "xclbinkernel")
        .def(py::init<>())
        .def("get_name", &xrt::xclbin::kernel::get_name)
        .def("get_num_args", &xrt::xclbin::kernel::get_num_args);
    py::class_<xrt::xclbin::mem>(xclbin, "xclbinmem")
        .def(py::init<>())
        .def("get_tag", &xrt::xclbin::mem::get_tag)
        .def("get_base_address", &xrt::xclbin::mem::get_base_address)
        .def("get_size_kb", &xrt::xclbin::mem::get_size_kb)
        .def("get_used", &xrt::xclbin::mem::get_used)
        .def("get_index", &xrt::xclbin::mem::get_index);
    xclbin.def(py::init<>())
        .def(py::init<const std::string&>())
        .def("get_kernels", &xrt::xclbin::get_kernels)
        .def("get_mems", &xrt::xclbin::get_mems)
        .def("get_uuid", &xrt::xclbin::get_uuid)
        .def("get_xsa_name", &xrt::xclbin::get_xsa_name);

    py::class_<xrt::device>(m, "device")
        .def(py::init<>())
        .def(py::init<unsigned int>())
        .def(py::init<const std::string&>())
        .def("load_xclbin", py::overload_cast<const std::string&>(&xrt::device::load_xclbin))
        .def("load_xclbin", py::overload_cast<const xrt::xclbin&>(&xrt::device::load_xclbin))
        .def("get_xclbin_uuid", &xrt::device::get_xclbin_uuid)
        .def("get_info", [](const xrt::device& device, Info key) { return tellers.at(key)(device); });

    py::class_<xrt::kernel> kernel(m, "kernel");
    using Access = xrt::kernel::cu_access_mode;
    py::enum_<Access>(kernel, "cu_access_mode")
        .value("exclusive", Access::exclusive)
        .value("shared", Access::shared)
        .value("none", Access::none)
        .export_values();
    kernel.def(py::init<const xrt::device&, const xrt::uuid&, const std::string&, Access>())
        .def(py::init([](const xrt::device& device, const xrt::uuid& uuid, const std::string& name) {
            return xrt::kernel(device, uuid, name);
        }))
        .def("__call__", &call)
        .def("group_id", &xrt::kernel::group_id);

    py::class_<xrt::bo> bo(m, "bo");
    using Flags = xrt::bo::flags;
    py::enum_<Flags>(bo, "flags")
        .value("normal", Flags::normal)
        .value("cacheable", Flags::cacheable)
        .value("device_only", Flags::device_only)
        .value("host_only", Flags::host_only)
        .value("p2p", Flags::p2p)
        .value("svm", Flags::svm)
        .export_values();
    bo.def(py::init<const xrt::device&, size_t, Flags, xrt::memory_group>())
        .def(py::init<const xrt::bo&, size_t, size_t>())
        .def("address", &xrt::bo::address)
        .def("size", &xrt::bo::size)
        .def("map", [](xrt::bo& self) { return py::memoryview::from_memory(self.map(), self.size()); })
        .def("read",
             [](xrt::bo& self, size_t size, size_t skip) {
                 py::array_t<int8_t> data(size);
                 self.read(data.mutable_data(), size, skip);
                 return data;
             })
        .def("write",
             [](xrt::bo& self, const py::buffer& data, size_t seek) {
                 const py::buffer_info view = data.request();
                 self.write(view.ptr, view.itemsize * view.size, seek);
             })
        .def("sync", [](xrt::bo& self, xclBOSyncDirection direction, size_t size, size_t offset) {
            self.sync(direction, size, offset);
        });

    py::class_<xrt::run>(m, "run")
        .def(py::init<>())
        .def(py::init<const xrt::kernel&>())
        .def("start", [](xrt::run& self) { self.start(); })
        .def("set_arg", [](xrt::run& self, int index, const xrt::bo& value) { self.set_arg(index, value); })
        .def("set_arg", [](xrt::run& self, int index, int value) { self.set_arg(index, value); })
        .def("wait", [](xrt::run& self) { return self.wait(0); })
        .def("wait", [](xrt::run& self, unsigned int timeout_ms) { return self.wait(timeout_ms); })
        .def("state", &xrt::run::state);
}
