// A JPEG file through an image CU with XRT's C++ API, on a card or, after `headrace xrt-env`, on the emulated one.
//
// OUT.bin has 3 x 224 x 224 little-endian float32: resized to 256 on the shorter side, cut to the middle, x / 255.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <vector>

#include "xrt/xrt_bo.h"
#include "xrt/xrt_device.h"
#include "xrt/xrt_kernel.h"

namespace {

// The arguments by number, as `headrace build --info` lists them.
enum Argument { JPEG, JPEG_BYTES, TENSOR, TENSOR_CAPACITY, TABLES, RESULT, STAGE, FORMAT, RESIZE_SHORT, CROP_WIDTH,
                CROP_HEIGHT, CROP_X, CROP_Y, WORKSPACE, WORKSPACE_BYTES, RING, RING_ENTRIES, RING_FIRST, POLLS, PROGRAM,
                PROGRAM_BYTES };
constexpr int SIDE = 224, NORMALIZE = 3, FLOAT32 = 0, CENTRED = -1, LIMIT_S = 60;

int run(const char* container, const char* photo, const char* output) {
    std::ifstream file(photo, std::ios::binary);
    const std::vector<char> jpeg((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (jpeg.empty()) {
        std::fprintf(stderr, "%s cannot be read\n", photo);
        return 1;
    }
    xrt::device device(0);
    const auto uuid = device.load_xclbin(container);
    xrt::kernel kernel(device, uuid, "image_cu");
    const auto buffer = [&](size_t size, Argument argument) {
        return xrt::bo(device, (size + 4095) / 4096 * 4096, kernel.group_id(argument));
    };
    xrt::bo in = buffer(jpeg.size(), JPEG), out = buffer(3 * SIDE * SIDE * 4, TENSOR), tables = buffer(3 * 256 * 4, TABLES),
            result = buffer(32, RESULT), workspace = buffer(6 << 20, WORKSPACE);
    std::memcpy(in.map(), jpeg.data(), jpeg.size());
    float* table = tables.map<float*>();
    for (int i = 0; i < 3 * 256; i++) table[i] = static_cast<float>(i % 256) / 255.0f;
    std::memset(result.map(), 0xFF, result.size());  // what a run that was given up leaves
    in.sync(XCL_BO_SYNC_BO_TO_DEVICE);
    result.sync(XCL_BO_SYNC_BO_TO_DEVICE);
    tables.sync(XCL_BO_SYNC_BO_TO_DEVICE);

    xrt::run run(kernel);
    run.set_arg(JPEG, in);
    run.set_arg(JPEG_BYTES, static_cast<int>(jpeg.size()));
    run.set_arg(TENSOR, out);
    run.set_arg(TENSOR_CAPACITY, static_cast<int>(out.size()));
    run.set_arg(TABLES, tables);
    run.set_arg(RESULT, result);
    run.set_arg(STAGE, NORMALIZE);
    run.set_arg(FORMAT, FLOAT32);
    run.set_arg(RESIZE_SHORT, 256);
    run.set_arg(CROP_WIDTH, SIDE);
    run.set_arg(CROP_HEIGHT, SIDE);
    run.set_arg(CROP_X, CENTRED);
    run.set_arg(CROP_Y, CENTRED);
    run.set_arg(WORKSPACE, workspace);
    run.set_arg(WORKSPACE_BYTES, static_cast<int>(workspace.size()));
    run.set_arg(RING, tables);  // there is none: 0 entries
    run.set_arg(RING_ENTRIES, 0);
    run.set_arg(RING_FIRST, 0);
    run.set_arg(POLLS, 0);
    run.set_arg(PROGRAM, tables);  // there is none, either
    run.set_arg(PROGRAM_BYTES, 0);
    run.start();
    ert_cmd_state state = ERT_CMD_STATE_TIMEOUT;
    for (int s = 0; s < LIMIT_S && state == ERT_CMD_STATE_TIMEOUT; s++) state = run.wait(1000);  // hw_emu sleeps it all
    if (state != ERT_CMD_STATE_COMPLETED) {
        std::fprintf(stderr, "the run did not complete\n");
        return 1;
    }
    result.sync(XCL_BO_SYNC_BO_FROM_DEVICE);
    const uint32_t* record = result.map<const uint32_t*>();
    if (record[0] == UINT32_MAX) {
        std::fprintf(stderr, "%s: the compute unit left no result\n", photo);
        return 1;
    }
    if (record[0] != 0) {
        std::fprintf(stderr, "%s: status %u, see docs/reference/registers.md\n", photo, record[0]);
        return 1;
    }
    out.sync(XCL_BO_SYNC_BO_FROM_DEVICE);
    std::ofstream tensor(output, std::ios::binary);
    if (!tensor.write(out.map<const char*>(), 3 * SIDE * SIDE * 4).flush()) {
        tensor.close();
        std::remove(output);
        std::fprintf(stderr, "%s cannot be written\n", output);
        return 1;
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
