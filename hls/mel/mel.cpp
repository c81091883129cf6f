#include "mel/mel.hpp"

#include "mel/mel_tables.hpp"

namespace headrace {
namespace {

constexpr unsigned HOP = 160;
constexpr unsigned RING = 512;    // pairs of samples; a frame has 256
constexpr unsigned BEFORE = 100;  // pairs of zeros before the first sample: half a window
constexpr unsigned POINTS = 256;  // of the complex FFT
constexpr unsigned MAX_MELS = 128;

using Emphasised = ap_int<34>;  // Q3.30: |x - a * before| < 8
// A component of a point; |point| < 11.4 before the FFT, and the greatest sum of the window's weights over the points
// that a stage has added bounds it behind. Fraction bits: 29 before, then 28, 28, 27, 26, 25, 24, 23, 22.
using Component = ap_int<34>;
using Wide = ap_int<35>;  // sum or difference of two
using Bin = ap_int<35>;   // Q11.23: |bin| < 1600, the sum of the window times 8
using Factor = ap_int<27>;   // LSB 2^-25
using Power = ap_uint<51>;   // LSB 2^-29, below 2^22
using Energy = ap_uint<60>;  // LSB 2^-42, below 2^18 where a filter's weights sum up to less than 2^-4

struct Pair {
    Emphasised even, odd;
};

struct Point {
    Component re, im;
};

struct Entry {  // of the filterbank's program
    ap_uint<24> falling, rising;
    bool emit;
};

struct Step {
    Entry up, down;
    bool advance, last;
};

struct Energies {
    Energy up[MAX_MELS], down[MAX_MELS];  // emitted by each lane, in its order
    ap_uint<9> up_count, down_count;
};

ap_uint<26> hann(unsigned i) {
#pragma HLS INLINE
    return i < 200 ? MEL_WINDOW[i] : MEL_WINDOW[399 - i];
}

// exp(-2 pi j k / 512) = cosine(k) - j sine(k), k = 0 to 255.
Factor cosine(unsigned k) {
#pragma HLS INLINE
    return MEL_COSINE[k];
}

Factor sine(unsigned k) {
#pragma HLS INLINE
    return k <= 128 ? MEL_COSINE[128 - k] : MEL_COSINE[k - 128];
}

// x * y + z * w without the fraction of y and w and SHIFT more bits, rounded half up.
template <int SHIFT>
ap_int<36> rounded(Wide x, Factor y, Wide z, Factor w) {
#pragma HLS INLINE
    const ap_int<63> sum = x * y + z * w + (ap_int<63>(1) << (24 + SHIFT));
    return sum >> (25 + SHIFT);
}

// y[i] = x[i] - a x[i - 1], exact with LSB 2^-39, rounded to 2^-30.
Emphasised emphasise(Sample16k sample, Sample16k before, ap_uint<18> preemphasis) {
#pragma HLS INLINE
    const ap_int<44> exact = (ap_int<44>(sample) << 18) - before * preemphasis + 256;
    return exact >> 9;
}

// A windowed sample: LSB 2^-56, rounded to 2^-29.
Component windowed(Emphasised sample, ap_uint<26> weight) {
#pragma HLS INLINE
    return (sample * weight + (ap_int<61>(1) << 26)) >> 27;
}

void load(hls::stream<ap_uint<128>>& program, Step steps[PROGRAM_WORDS]) {
    for (unsigned i = 0; i < PROGRAM_WORDS; i++) {
#pragma HLS PIPELINE II = 1
        const ap_uint<128> word = program.read();
        const Entry up{word.range(23, 0), word.range(47, 24), word[48]};
        const Entry down{word.range(87, 64), word.range(111, 88), word[112]};
        steps[i] = Step{up, down, word[49], word[50]};
    }
}

// Windowed points of the frame whose window begins with pair `first` of the ring.
void frame(const Pair ring[RING], unsigned first, Point points[POINTS]) {
    for (unsigned n = 0; n < POINTS; n++) {
#pragma HLS PIPELINE II = 1
        const bool inside = n >= 28 && n < 228;
        const Pair pair = ring[(first + n - 28) % RING];
        points[n].re = inside ? windowed(pair.even, hann(2 * (n - 28))) : Component(0);
        points[n].im = inside ? windowed(pair.odd, hann(2 * (n - 28) + 1)) : Component(0);
    }
}

// Stage of the FFT: butterflies of points 128 >> STAGE apart, decimation in frequency.
template <int STAGE>
void fft_stage(const Point in[POINTS], Point out[POINTS]) {
    constexpr unsigned APART = 128 >> STAGE;
    constexpr int SHIFT = STAGE == 1 ? 0 : 1;  // the second cannot outgrow the first's format: the window is short
    for (unsigned t = 0; t < POINTS / 2; t++) {
#pragma HLS PIPELINE II = 1
        const unsigned j = t % APART, low = (t - j) * 2 + j, high = low + APART, k = j << (STAGE + 1);
        const Wide sum_re = in[low].re + in[high].re, sum_im = in[low].im + in[high].im;
        const Wide re = in[low].re - in[high].re, im = in[low].im - in[high].im;
        out[low].re = (sum_re + SHIFT) >> SHIFT;
        out[low].im = (sum_im + SHIFT) >> SHIFT;
        out[high].re = rounded<SHIFT>(re, cosine(k), im, sine(k));
        out[high].im = rounded<SHIFT>(im, cosine(k), -re, sine(k));
    }
}

// |x|^2 of LSB 2^-46, rounded to 2^-29, from products of 18 and 17 bits.
Power power(Bin re, Bin im) {
#pragma HLS INLINE
    const ap_int<18> re_high = re >> 17, im_high = im >> 17;
    const ap_uint<17> re_low = re, im_low = im;
    const ap_uint<36> high = re_high * re_high + im_high * im_high;
    const ap_int<36> middle = re_high * re_low + im_high * im_low;
    const ap_uint<36> low = re_low * re_low + im_low * im_low + (ap_uint<36>(1) << 16);
    return (ap_int<54>(high) << 17) + (ap_int<54>(middle) << 1) + (low >> 17);
}

// A weighted power: LSB 2^-57, rounded to 2^-42.
Energy weighted(Power power, ap_uint<24> weight) {
#pragma HLS INLINE
    const ap_uint<17> high = power >> 34, middle = power >> 17, low = power;
    const ap_uint<42> rounded = low * weight + (1u << 14);
    return (Energy(high * weight) << 19) + (Energy(middle * weight) << 2) + (rounded >> 15);
}

// One lane of the filterbank: the filter that it leaves and the next one.
struct Lane {
    Energy leaving, next;
    ap_uint<9> count;

    void step(Power power, Entry entry, Energy energies[MAX_MELS]) {
#pragma HLS INLINE
        const Energy first = leaving + weighted(power, entry.falling);
        const Energy second = next + weighted(power, entry.rising);
        if (entry.emit && count < MAX_MELS) energies[count] = first;
        leaving = entry.emit ? second : first;
        next = entry.emit ? Energy(0) : second;
        count = count + entry.emit;
    }
};

// Bins k and 256 - k of the real FFT from points k and 256 - k (which lie in bit-reversed order), their powers, and the
// filters that they are in.
void filterbank(const Point points[POINTS], const Step steps[PROGRAM_WORDS], Energies& energies) {
    Lane up{0, 0, 0}, down{0, 0, 0};
    unsigned k = 1;
    bool last = false;
    for (unsigned i = 0; i < PROGRAM_WORDS && !last; i++) {
#pragma HLS PIPELINE II = 1
        const Step step = steps[i];
        ap_uint<8> at = k, mirror = -k;
        at.reverse();  // in place
        mirror.reverse();
        const Point a = points[at], b = points[mirror];
        const Wide even_re = a.re + b.re, even_im = a.im - b.im;  // twice the even samples' FFT, LSB 2^-22
        const Wide odd_re = a.im + b.im, odd_im = b.re - a.re;
        const ap_int<36> turned_re = rounded<0>(odd_re, cosine(k), odd_im, sine(k));
        const ap_int<36> turned_im = rounded<0>(odd_im, cosine(k), -odd_re, sine(k));
        up.step(power(even_re + turned_re, even_im + turned_im), step.up, energies.up);
        down.step(power(even_re - turned_re, even_im - turned_im), step.down, energies.down);
        if (step.advance) k = k == 128 ? 1 : k + 1;
        last = step.last;
    }
    energies.up_count = up.count;
    energies.down_count = down.count;
}

// ln(energy), LSB 2^-18: leading zeros times ln 2, and a table of 512 steps with linear interpolation. Of 0, where the
// floor is 0 too: ln(2^-42).
LogMel natural_log(Energy energy) {
#pragma HLS INLINE
    Energy mantissa = energy == 0 ? Energy(1) : energy;
    unsigned zeros = 0;
    for (unsigned width = 32; width; width /= 2) {
#pragma HLS UNROLL
        if (mantissa >> (60 - width) == 0) {
            mantissa <<= width;
            zeros += width;
        }
    }
    const ap_uint<9> index = mantissa >> 50;
    const ap_uint<17> fraction = mantissa >> 33;
    const ap_uint<17> slope = MEL_LOGARITHM[index + 1] - MEL_LOGARITHM[index];
    const ap_uint<34> step = slope * fraction;
    const ap_int<33> sum = MEL_EXPONENT[zeros] + MEL_LOGARITHM[index] + ap_int<33>(step >> 17) + 128;
    return sum >> 8;
}

void logarithm(const Energies& energies, ap_uint<8> n_mels, ap_uint<32> log_floor, hls::stream<LogMel>& values) {
    for (unsigned m = 0; m < n_mels; m++) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 128
        const unsigned from_top = n_mels - 1 - m;
        const Energy up = m < energies.up_count ? energies.up[m] : Energy(0);
        const Energy down = from_top < energies.down_count ? energies.down[from_top] : Energy(0);
        values.write(natural_log(up + down + (Energy(log_floor) << 2)));
    }
}

void log_mel(const Pair ring[RING], unsigned first, const Step steps[PROGRAM_WORDS], ap_uint<8> n_mels,
             ap_uint<32> log_floor, hls::stream<LogMel>& values) {
#pragma HLS DATAFLOW
    Point points[9][POINTS];
#pragma HLS ARRAY_PARTITION variable = points complete dim = 1
    Energies energies;
    frame(ring, first, points[0]);
    fft_stage<0>(points[0], points[1]);
    fft_stage<1>(points[1], points[2]);
    fft_stage<2>(points[2], points[3]);
    fft_stage<3>(points[3], points[4]);
    fft_stage<4>(points[4], points[5]);
    fft_stage<5>(points[5], points[6]);
    fft_stage<6>(points[6], points[7]);
    fft_stage<7>(points[7], points[8]);
    filterbank(points[8], steps, energies);
    logarithm(energies, n_mels, log_floor, values);
}

}  // namespace

void mel(hls::stream<ap_uint<128>>& program, hls::stream<Sound>& sounds, hls::stream<Sample16k>& samples,
         ap_uint<8> n_mels, ap_uint<18> preemphasis, ap_uint<32> log_floor, hls::stream<Sound>& frames,
         hls::stream<LogMel>& values) {
    Step steps[PROGRAM_WORDS];
    load(program, steps);
    const Sound sound = sounds.read();
    if (sound.status != STATUS_OK) {
        frames.write(sound);
        return;
    }
    const uint32_t count = sound.count, frame_count = count / HOP + 1;
    frames.write(Sound{STATUS_OK, sound.rate, frame_count});

    Pair ring[RING];  // pair i of the sound, counted from BEFORE in front of it, lies in ring[i % RING]
    Sample16k before = 0;
    uint32_t taken = 0, written = 0;
    for (uint32_t t = 0; t < frame_count; t++) {
#pragma HLS LOOP_TRIPCOUNT max = 65535
        const uint32_t first = HOP / 2 * t;
        for (; written < first + 2 * BEFORE; written++) {
#pragma HLS PIPELINE II = 2
#pragma HLS LOOP_TRIPCOUNT max = 200
            Emphasised value[2];
            for (unsigned i = 0; i < 2; i++) {
#pragma HLS UNROLL
                const bool inside = written >= BEFORE && taken < count;
                const Sample16k sample = inside ? samples.read() : Sample16k(0);
                value[i] = inside ? emphasise(sample, before, preemphasis) : Emphasised(0);
                before = sample;
                taken += inside;
            }
            ring[written % RING] = Pair{value[0], value[1]};
        }
        log_mel(ring, first % RING, steps, n_mels, log_floor, values);
    }
}

}  // namespace headrace
