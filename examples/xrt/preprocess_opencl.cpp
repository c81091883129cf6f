// A JPEG file through an image CU with OpenCL, on a card or, after `headrace xrt-env`, on the emulated one.
//
// OUT.bin has 3 x 224 x 224 little-endian float32: resized to 256 on the shorter side, cut to the middle, x / 255.
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

// The arguments by number, as `headrace build --info` lists them.
enum Argument { JPEG, JPEG_BYTES, TENSOR, TENSOR_CAPACITY, TABLES, RESULT, STAGE, FORMAT, RESIZE_SHORT, CROP_WIDTH,
                CROP_HEIGHT, CROP_X, CROP_Y, WORKSPACE, WORKSPACE_BYTES, RING, RING_ENTRIES, RING_FIRST, POLLS, PROGRAM,
                PROGRAM_BYTES, REGISTERS };
constexpr int SIDE = 224, NORMALIZE = 3, FLOAT32 = 0, CENTRED = -1;
constexpr size_t TENSOR_BYTES = 3 * SIDE * SIDE * 4, TABLES_BYTES = 3 * 256 * 4, RECORD_BYTES = 32, WORKSPACE_SIZE = 6 << 20;

void check(cl_int status, const char* what) {
    if (status != CL_SUCCESS) throw std::runtime_error(std::string(what) + ": OpenCL error " + std::to_string(status));
}

std::vector<unsigned char> content(const char* path) {
    std::ifstream file(path, std::ios::binary);
    std::vector<unsigned char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (bytes.empty()) throw std::runtime_error(std::string(path) + " cannot be read");
    return bytes;
}

int run(const char* container, const char* photo, const char* output) {
    const auto jpeg = content(photo), binary = content(container);
    cl_platform_id platforms[8];
    cl_device_id device = nullptr;
    cl_uint count = 0;
    check(clGetPlatformIDs(8, platforms, &count), "platforms");
    for (cl_uint i = 0; i < count && i < 8 && device == nullptr; i++) {
        char vendor[64] = "";
        clGetPlatformInfo(platforms[i], CL_PLATFORM_VENDOR, sizeof vendor, vendor, nullptr);
        if (std::string(vendor) == "Xilinx") {
            check(clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ACCELERATOR, 1, &device, nullptr), "devices");
        }
    }
    if (device == nullptr) throw std::runtime_error("no card");
    cl_int status;
    cl_context context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, &status);
    check(status, "context");
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &status);
    check(status, "queue");
    const unsigned char* binaries[] = {binary.data()};
    const size_t sizes[] = {binary.size()};
    cl_program program = clCreateProgramWithBinary(context, 1, &device, sizes, binaries, nullptr, &status);
    check(status, container);
    cl_kernel kernel = clCreateKernel(program, "image_cu", &status);
    check(status, "image_cu");

    const auto scalar = [&](cl_uint argument, int value) {
        check(clSetKernelArg(kernel, argument, sizeof value, &value), "a scalar");
    };
    const auto buffer = [&](cl_uint argument, size_t size, const void* bytes, size_t filled) {
        cl_mem memory = clCreateBuffer(context, CL_MEM_READ_WRITE, (size + 4095) / 4096 * 4096, nullptr, &status);
        check(status, "a buffer");
        check(clSetKernelArg(kernel, argument, sizeof memory, &memory), "a pointer");  // says the bank, before it is used
        if (filled > 0) check(clEnqueueWriteBuffer(queue, memory, CL_TRUE, 0, filled, bytes, 0, nullptr, nullptr), "write");
        return memory;
    };
    std::vector<float> table(3 * 256);
    for (int i = 0; i < 3 * 256; i++) table[i] = static_cast<float>(i % 256) / 255.0f;
    std::vector<uint32_t> record(RECORD_BYTES / 4, UINT32_MAX);  // what a run that was given up leaves
    cl_mem in = buffer(JPEG, jpeg.size(), jpeg.data(), jpeg.size());
    cl_mem out = buffer(TENSOR, TENSOR_BYTES, nullptr, 0);
    cl_mem tables = buffer(TABLES, TABLES_BYTES, table.data(), TABLES_BYTES);
    cl_mem result = buffer(RESULT, RECORD_BYTES, record.data(), RECORD_BYTES);
    cl_mem workspace = buffer(WORKSPACE, WORKSPACE_SIZE, nullptr, 0);
    cl_mem ring = buffer(RING, 4096, nullptr, 0);  // not used: 0 entries
    cl_mem program_memory = buffer(PROGRAM, 4096, nullptr, 0);  // not used: another stage
    scalar(JPEG_BYTES, static_cast<int>(jpeg.size()));
    scalar(TENSOR_CAPACITY, TENSOR_BYTES);
    scalar(STAGE, NORMALIZE);
    scalar(FORMAT, FLOAT32);
    scalar(RESIZE_SHORT, 256);
    scalar(CROP_WIDTH, SIDE);
    scalar(CROP_HEIGHT, SIDE);
    scalar(CROP_X, CENTRED);
    scalar(CROP_Y, CENTRED);
    scalar(WORKSPACE_BYTES, WORKSPACE_SIZE);
    for (cl_uint argument : {RING_ENTRIES, RING_FIRST, POLLS, PROGRAM_BYTES}) scalar(argument, 0);
    cl_uint arguments = 0;
    check(clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof arguments, &arguments, nullptr), "arguments");
    for (cl_uint i = REGISTERS; i < arguments; i++) scalar(i, 0);  // OpenCL wants a value for output registers, too

    check(clEnqueueTask(queue, kernel, 0, nullptr, nullptr), "start");
    check(clFinish(queue), "run");
    check(clEnqueueReadBuffer(queue, result, CL_TRUE, 0, RECORD_BYTES, record.data(), 0, nullptr, nullptr), "read");
    if (record[0] == UINT32_MAX) throw std::runtime_error(std::string(photo) + ": the compute unit left no result");
    if (record[0] != 0) {
        throw std::runtime_error(std::string(photo) + ": status " + std::to_string(record[0]) + ", see docs/reference/registers.md");
    }
    std::vector<char> values(TENSOR_BYTES);
    check(clEnqueueReadBuffer(queue, out, CL_TRUE, 0, TENSOR_BYTES, values.data(), 0, nullptr, nullptr), "read");
    for (cl_mem memory : {in, out, tables, result, workspace, ring, program_memory}) clReleaseMemObject(memory);
    clReleaseKernel(kernel);
    clReleaseProgram(program);
    clReleaseCommandQueue(queue);
    clReleaseContext(context);

    std::ofstream tensor(output, std::ios::binary);
    if (!tensor.write(values.data(), TENSOR_BYTES).flush()) {
        tensor.close();
        std::remove(output);
        throw std::runtime_error(std::string(output) + " cannot be written");
    }
    std::printf("%ux%u to %ux%u\n", record[3], record[4], record[1], record[2]);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) {
        std::fprintf(stderr, "usage: %s FILE.xclbin PHOTO.jpg OUT.bin\n", argv[0]);
        return 2;
    }
    try {
        return run(argv[1], argv[2], argv[3]);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
