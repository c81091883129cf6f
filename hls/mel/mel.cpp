#include "mel/mel.hpp"

#include "mel/mel_tables.hpp"

namespace headrace {
namespace {

constexpr unsigned HOP = 160;
constexpr unsigned RING = 512;      // pairs of samples; a frame has 256
constexpr unsigned HALF_PAIRS = 100;  // in half a window
constexpr unsigned TAIL = 64;       // samples that are kept for the mirrored end
constexpr unsigned STARTS = 8;      // frames whose beginnings are kept; a frame that begins is one of three
constexpr unsigned POINTS = 256;    // of the complex DFT: 256 or 200 are in use
constexpr unsigned MAX_MELS = 128;
constexpr unsigned MAX_EXPONENT_ADDED = 13, MAX_EXPONENT = 31;

using Emphasised = ap_int<43>;  // Q3.39: |x - a * before| < 8
using Windowed = ap_int<44>;    // Q3.40
// A component of a point, in units of its frame. Before the DFT it is below 2^32, and |point| below 2^32.5. Each stage of
// radix 2 halves its sums. The two of radix 5 take a quarter and an eighth. So no component reaches 2^33.
using Component = ap_int<34>;
using Wide = ap_int<35>;     // sum or difference of two
using Half = ap_int<36>;     // half of what a DFT of 5 gives
using Bin = ap_int<35>;      // LSB 2^-22 in units of the frame: |bin| < 3200, the window's samples times 8
using Factor = ap_int<27>;   // LSB 2^-25
using Power = ap_uint<55>;   // LSB 2^-31, below 2^24
using Energy = ap_uint<64>;  // LSB 2^-44, below 2^20 where a filter's weights sum up to less than 2^-4

using Sum = ap_int<33>;      // of up to 400 samples, LSB 2^-21

struct Pair {
    Emphasised even, odd;
};

// What a plan takes from the samples of a frame, where its settings ask for it.
struct FrameFilter {
    Emphasised mean;   // is subtracted from all of them
    bool has_head;
    Emphasised head;   // replaces the first one
};

struct WindowedPair {
    Windowed even, odd;
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

struct Row {  // of the window's table
    ap_uint<26> weight[4];
};

struct Energies {
    Energy up[MAX_MELS], down[MAX_MELS];  // emitted by each lane, in its order
    ap_uint<9> up_count, down_count;
};

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

// y[i] = x[i] - a x[i - 1], exact with LSB 2^-45, rounded to 2^-39.
Emphasised emphasise(Sample16k sample, Sample16k before, ap_uint<24> preemphasis) {
#pragma HLS INLINE
    const ap_int<50> exact = (ap_int<50>(sample) << 24) - before * preemphasis + 32;
    return exact >> 6;
}

// The share of a frame's mean in its emphasised samples, (1 - a) sum / 400, rounded to 2^-39. A frame of equal samples has
// it in each of them but the first one, to the last bit.
Emphasised mean_of(Sum sum, ap_uint<24> preemphasis) {
#pragma HLS INLINE
    const ap_int<58> product = sum * ((ap_int<26>(1) << 24) - preemphasis) + 12800;  // LSB 2^-45
    const ap_uint<48> positive = (product >> 10) + (ap_int<49>(25) << 42);
    return ap_int<49>(positive / 25) - (ap_int<49>(1) << 42);
}

// A windowed sample: LSB 2^-65, rounded to 2^-40.
Windowed windowed(Emphasised sample, ap_uint<26> weight) {
#pragma HLS INLINE
    return (sample * weight + (ap_int<70>(1) << 24)) >> 25;
}

void load(hls::stream<ap_uint<128>>& program, Step steps[PROGRAM_STEPS], Row window[WINDOW_ROWS]) {
    for (unsigned i = 0; i < PROGRAM_STEPS; i++) {
#pragma HLS PIPELINE II = 1
        const ap_uint<128> word = program.read();
        const Entry up{word.range(23, 0), word.range(47, 24), word[48]};
        const Entry down{word.range(87, 64), word.range(111, 88), word[112]};
        steps[i] = Step{up, down, word[49], word[50]};
    }
    for (unsigned i = 0; i < WINDOW_ROWS; i++) {
#pragma HLS PIPELINE II = 1
        const ap_uint<128> word = program.read();
        for (unsigned j = 0; j < 4; j++) {
#pragma HLS UNROLL
            window[i].weight[j] = word.range(32 * j + 25, 32 * j);
        }
    }
}

// Windowed points of the frame that begins with pair `first` of the ring, and their exponent: the zero bits in front of
// the greatest magnitude, up to `max_exponent`.
void frame(const Pair ring[RING], unsigned first, const FrameFilter& filter, const Row window[WINDOW_ROWS],
           bool points_400, unsigned max_exponent, WindowedPair out[POINTS], unsigned& exponent) {
    const unsigned before = points_400 ? 0 : 28;  // pairs of points in front of the window
    ap_uint<43> magnitudes = 0;
    for (unsigned n = 0; n < POINTS; n++) {
#pragma HLS PIPELINE II = 1
        const bool inside = n >= before && n < before + 2 * HALF_PAIRS;
        const unsigned half = n >= (points_400 ? 120u : 128u) ? 2 : 0;
        const Row row = window[n % 128];
        const Pair pair = ring[(first + n - before) % RING];
        const Emphasised first_even = filter.has_head && n == before ? filter.head : pair.even;
        const Emphasised even_sample = first_even - filter.mean, odd_sample = pair.odd - filter.mean;
        const Windowed even = inside ? windowed(even_sample, row.weight[half]) : Windowed(0);
        const Windowed odd = inside ? windowed(odd_sample, row.weight[half + 1]) : Windowed(0);
        out[n] = WindowedPair{even, odd};
        magnitudes |= ap_uint<43>(even ^ (even >> 43)) | ap_uint<43>(odd ^ (odd >> 43));
    }
    exponent = 0;
    for (unsigned i = 0; i < MAX_EXPONENT; i++) {
#pragma HLS UNROLL
        if (exponent == i && i < max_exponent && !magnitudes[42 - i]) exponent = i + 1;
    }
}

// The points in units of the frame.
void scale(const WindowedPair in[POINTS], unsigned exponent, Point points[POINTS]) {
    for (unsigned n = 0; n < POINTS; n++) {
#pragma HLS PIPELINE II = 1
        points[n].re = Windowed(in[n].even << exponent) >> 11;
        points[n].im = Windowed(in[n].odd << exponent) >> 11;
    }
}

// A stage of radix 2: butterflies of points 128 >> STAGE apart, decimation in frequency.
template <int STAGE>
void fft_stage(const Point in[POINTS], Point out[POINTS]) {
    constexpr unsigned APART = 128 >> STAGE;
    for (unsigned t = 0; t < POINTS / 2; t++) {
#pragma HLS PIPELINE II = 1
        const unsigned j = t % APART, low = (t - j) * 2 + j, high = low + APART, k = j << (STAGE + 1);
        const Wide sum_re = in[low].re + in[high].re, sum_im = in[low].im + in[high].im;
        const Wide re = in[low].re - in[high].re, im = in[low].im - in[high].im;
        out[low].re = (sum_re + 1) >> 1;
        out[low].im = (sum_im + 1) >> 1;
        out[high].re = rounded<1>(re, cosine(k), im, sine(k));
        out[high].im = rounded<1>(im, cosine(k), -re, sine(k));
    }
}

struct Fifth {  // half a point of a DFT of 5
    Half re, im;
};

// Half the DFT of 5 points.
void dft5(const Point in[5], Fifth out[5]) {
#pragma HLS INLINE
    const Wide sum_1_re = in[1].re + in[4].re, sum_1_im = in[1].im + in[4].im;
    const Wide sum_2_re = in[2].re + in[3].re, sum_2_im = in[2].im + in[3].im;
    const Wide re_1 = in[1].re - in[4].re, im_1 = in[1].im - in[4].im;
    const Wide re_2 = in[2].re - in[3].re, im_2 = in[2].im - in[3].im;
    const ap_int<36> all_re = sum_1_re + sum_2_re, all_im = sum_1_im + sum_2_im;
    const Wide between_re = (sum_1_re - sum_2_re) >> 1, between_im = (sum_1_im - sum_2_im) >> 1;
    const Half up_re = rounded<1>(between_re, MEL_FIFTH[2], 0, 0), up_im = rounded<1>(between_im, MEL_FIFTH[2], 0, 0);
    const Half middle_re = (4 * in[0].re + 3 - all_re) >> 3, middle_im = (4 * in[0].im + 3 - all_im) >> 3;
    const Half near_re = middle_re + up_re, near_im = middle_im + up_im;
    const Half far_re = middle_re - up_re, far_im = middle_im - up_im;
    const Half turn_1_re = rounded<1>(re_1, MEL_FIFTH[0], re_2, MEL_FIFTH[1]);
    const Half turn_1_im = rounded<1>(im_1, MEL_FIFTH[0], im_2, MEL_FIFTH[1]);
    const Half turn_2_re = rounded<1>(re_2, MEL_FIFTH[0], -re_1, MEL_FIFTH[1]);
    const Half turn_2_im = rounded<1>(im_2, MEL_FIFTH[0], -im_1, MEL_FIFTH[1]);
    out[0] = Fifth{(in[0].re + all_re + 1) >> 1, (in[0].im + all_im + 1) >> 1};
    out[1] = Fifth{near_re + turn_1_im, near_im - turn_1_re};
    out[4] = Fifth{near_re - turn_1_im, near_im + turn_1_re};
    out[2] = Fifth{far_re - turn_2_im, far_im + turn_2_re};
    out[3] = Fifth{far_re + turn_2_im, far_im - turn_2_re};
}

// The first pass of 200 = 25 * 8 points: DFTs of 5 of points 40 apart. Result c of points r, r + 40, ... turns by 22 r c
// / 25 and comes to r + 40 c.
void first_fifths(const Point in[POINTS], Point out[POINTS]) {
    for (unsigned r = 0; r < 40; r++) {
#pragma HLS PIPELINE II = 3
        Point points[5];
        Fifth fifths[5];
        for (unsigned m = 0; m < 5; m++) points[m] = in[r + 40 * m];
        dft5(points, fifths);
        for (unsigned c = 0; c < 5; c++) {
            const unsigned k = 22 * r * c % 25;
            const Wide re = fifths[c].re, im = fifths[c].im;
            out[r + 40 * c].re = rounded<1>(re, MEL_TURN_COSINE[k], im, MEL_TURN_SINE[k]);
            out[r + 40 * c].im = rounded<1>(im, MEL_TURN_COSINE[k], -re, MEL_TURN_SINE[k]);
        }
    }
}

// The second one: DFTs of 5 of what has the same c and the same r modulo 8. Their points are those of a DFT of 25, of
// which there are eight; those of the same number lie together, for the last three stages.
void second_fifths(const Point in[POINTS], Point out[POINTS]) {
    for (unsigned c = 0; c < 5; c++) {
        for (unsigned b = 0; b < 8; b++) {
#pragma HLS PIPELINE II = 3
            Point points[5];
            Fifth fifths[5];
            for (unsigned q = 0; q < 5; q++) points[(q + 2 * b) % 5] = in[b + 8 * q + 40 * c];
            dft5(points, fifths);
            for (unsigned d = 0; d < 5; d++) {
                out[8 * (c + 5 * d) + b].re = fifths[d].re >> 2;
                out[8 * (c + 5 * d) + b].im = fifths[d].im >> 2;
            }
        }
    }
}

// |x|^2 of LSB 2^-44, rounded to 2^-31, from products of 18 and 17 bits.
Power power(Bin re, Bin im) {
#pragma HLS INLINE
    const ap_int<18> re_high = re >> 17, im_high = im >> 17;
    const ap_uint<17> re_low = re, im_low = im;
    const ap_uint<36> high = re_high * re_high + im_high * im_high;
    const ap_int<36> middle = re_high * re_low + im_high * im_low;
    const ap_uint<36> low = re_low * re_low + im_low * im_low + (ap_uint<36>(1) << 12);
    return (ap_int<58>(high) << 21) + (ap_int<58>(middle) << 5) + (low >> 13);
}

// A weighted power: LSB 2^-59, rounded to 2^-44.
Energy weighted(Power power, ap_uint<24> weight) {
#pragma HLS INLINE
    const ap_uint<17> high = power >> 34, middle = power >> 17, low = power;
    const ap_uint<4> top = power >> 51;
    const ap_uint<42> rounded = low * weight + (1u << 14);
    return (Energy(top * weight) << 36) + (Energy(high * weight) << 19) + (Energy(middle * weight) << 2) +
           (rounded >> 15);
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

// Where point k lies: the last three stages leave those of a DFT of 8 in bit-reversed order, all stages those of 256.
unsigned place(unsigned k, bool points_400) {
#pragma HLS INLINE
    ap_uint<8> bits = k;
    ap_uint<3> eighth = k;
    bits.reverse();  // in place
    eighth.reverse();
    return points_400 ? 8 * (k % 25) + eighth.to_uint() : bits.to_uint();
}

// Bins k and N / 2 - k of the real DFT from points k and N / 2 - k, their powers, and the filters that they are in.
void filterbank(const Point points[POINTS], const Step steps[PROGRAM_STEPS], bool points_400, Energies& energies) {
    Lane up{0, 0, 0}, down{0, 0, 0};
    const unsigned middle = points_400 ? 100 : 128;
    unsigned k = 1;
    bool last = false;
    for (unsigned i = 0; i < PROGRAM_STEPS && !last; i++) {
#pragma HLS PIPELINE II = 1
        const Step step = steps[i];
        const Point a = points[place(k, points_400)], b = points[place(2 * middle - k, points_400)];
        const Factor cos = points_400 ? Factor(MEL_COSINE_400[k]) : cosine(k);
        const Factor sin = points_400 ? Factor(MEL_COSINE_400[100 - k]) : sine(k);
        const Wide even_re = a.re + b.re, even_im = a.im - b.im;  // twice the even samples' DFT, LSB 2^-21
        const Wide odd_re = a.im + b.im, odd_im = b.re - a.re;
        const ap_int<36> turned_re = rounded<0>(odd_re, cos, odd_im, sin);
        const ap_int<36> turned_im = rounded<0>(odd_im, cos, -odd_re, sin);
        up.step(power(even_re + turned_re, even_im + turned_im), step.up, energies.up);
        down.step(power(even_re - turned_re, even_im - turned_im), step.down, energies.down);
        if (step.advance) k = k == middle ? 1 : k + 1;
        last = step.last;
    }
    energies.up_count = up.count;
    energies.down_count = down.count;
}

// ln(energy * 2^exponent), LSB 2^-18: bits in front of the point times ln 2, and a table of 512 steps with linear
// interpolation. Of 0 as of the least energy. What has no place in 24 bits becomes the nearest that has.
LogMel natural_log(Energy energy, ap_int<9> exponent) {
#pragma HLS INLINE
    Energy mantissa = energy == 0 ? Energy(1) : energy;
    unsigned zeros = 0;
    for (unsigned width = 32; width; width /= 2) {
#pragma HLS UNROLL
        if (mantissa >> (64 - width) == 0) {
            mantissa <<= width;
            zeros += width;
        }
    }
    const int bits = exponent.to_int() + 19 - static_cast<int>(zeros);
    const unsigned entry = bits < -64 ? 0 : bits > 63 ? 127 : bits + 64;
    const ap_uint<9> index = mantissa >> 54;
    const ap_uint<17> fraction = mantissa >> 37;
    const ap_uint<17> slope = MEL_LOGARITHM[index + 1] - MEL_LOGARITHM[index];
    const ap_uint<34> step = slope * fraction;
    const ap_int<34> sum = ap_int<34>(MEL_EXPONENT[entry]) + MEL_LOGARITHM[index] + ap_int<34>(step >> 17) + 128;
    const ap_int<26> value = sum >> 8;
    return value < -(1 << 23) ? LogMel(-(1 << 23)) : value >= 1 << 23 ? LogMel((1 << 23) - 1) : LogMel(value);
}

void logarithm(const Energies& energies, ap_uint<8> n_mels, ap_uint<32> log_floor, const Plan& plan, unsigned exponent,
               hls::stream<LogMel>& values) {
    const Energy added = plan.least_floor ? Energy(0) : Energy(Energy(log_floor) << (4 + 2 * exponent));
    const LogMel least = log_floor;
    for (unsigned m = 0; m < n_mels; m++) {
#pragma HLS PIPELINE II = 1
#pragma HLS LOOP_TRIPCOUNT max = 128
        const unsigned from_top = n_mels - 1 - m;
        const Energy up = m < energies.up_count ? energies.up[m] : Energy(0);
        const Energy down = from_top < energies.down_count ? energies.down[from_top] : Energy(0);
        const LogMel value = natural_log(up + down + added, plan.exponent - 2 * static_cast<int>(exponent));
        values.write(plan.least_floor && value < least ? least : value);
    }
}

void log_mel(const Pair ring[RING], unsigned first, const FrameFilter& filter, const Step steps[PROGRAM_STEPS],
             const Row window[WINDOW_ROWS], ap_uint<8> n_mels, ap_uint<32> log_floor, const Plan& plan,
             hls::stream<LogMel>& values) {
#pragma HLS DATAFLOW
    WindowedPair windowed[POINTS];
    Point points[9][POINTS];
#pragma HLS ARRAY_PARTITION variable = points complete dim = 1
    Energies energies;
    unsigned exponent;
    const bool points_400 = plan.points_400;
    const unsigned max_exponent = plan.least_floor ? MAX_EXPONENT : MAX_EXPONENT_ADDED;
    frame(ring, first, filter, window, points_400, max_exponent, windowed, exponent);
    scale(windowed, exponent, points[0]);
    if (points_400) {
        first_fifths(points[0], points[1]);
        second_fifths(points[1], points[5]);
        for (unsigned n = 200; n < POINTS; n++) points[5][n] = Point{0, 0};
    } else {
        fft_stage<0>(points[0], points[1]);
        fft_stage<1>(points[1], points[2]);
        fft_stage<2>(points[2], points[3]);
        fft_stage<3>(points[3], points[4]);
        fft_stage<4>(points[4], points[5]);
    }
    fft_stage<5>(points[5], points[6]);
    fft_stage<6>(points[6], points[7]);
    fft_stage<7>(points[7], points[8]);
    filterbank(points[8], steps, points_400, energies);
    logarithm(energies, n_mels, log_floor, plan, exponent, values);
}

// Frames of a sound of so many samples.
uint32_t frames_of(uint32_t count, Ends ends) {
    if (ends == ENDS_INSIDE) return count < 240 ? 0 : (count - 240) / HOP;  // of 400 samples
    return count / HOP + (ends == ENDS_ZEROS);
}

}  // namespace

Plan plan_of(ap_uint<16> bits) {
#pragma HLS INLINE
    const unsigned ends = bits.range(2, 1);
    const bool inside = ends >= ENDS_INSIDE;
    return Plan{bits[0],           inside ? ENDS_INSIDE : Ends(ends), bits[3], bits[4] && inside, bits[5] && inside,
                ap_int<8>(bits.range(15, 8))};
}

void mel(hls::stream<ap_uint<128>>& program, hls::stream<Sound>& sounds, hls::stream<Sample16k>& samples,
         ap_uint<8> n_mels, ap_uint<24> preemphasis, ap_uint<32> log_floor, ap_uint<16> plan_bits,
         ap_uint<32> min_samples, ap_uint<32> max_samples, hls::stream<Sound>& frames, hls::stream<LogMel>& values) {
    Step steps[PROGRAM_STEPS];
    Row window[WINDOW_ROWS];
    load(program, steps, window);
    const Sound sound = sounds.read();
    if (sound.status != STATUS_OK) {
        frames.write(sound);
        return;
    }
    const Plan plan = plan_of(plan_bits);
    const uint32_t given = sound.count, at_least = given < min_samples ? min_samples.to_uint() : given;
    const uint32_t count = at_least > max_samples ? max_samples.to_uint() : at_least;
    const uint32_t frame_count = frames_of(count, plan.ends);
    frames.write(Sound{frame_count ? Status(STATUS_OK) : Status(STATUS_BAD_ARGUMENT), sound.rate, frame_count});

    // Pair i, counted from the beginning of the first window, lies in ring[i % RING].
    Pair ring[RING];
    Emphasised tail[TAIL];
    const bool mirrored = plan.ends == ENDS_MIRRORED;
    const uint32_t before_sound = plan.ends == ENDS_INSIDE ? 0 : HALF_PAIRS;
    Sample16k before = 0;
    Emphasised odd_before = 0;
    Sum total = 0, starts[STARTS];  // of all samples so far, and of those in front of each frame
    Emphasised heads[STARTS];       // the first sample of each frame, with itself in place of the one before
    uint32_t taken = 0, written = mirrored ? before_sound : 0;
    for (uint32_t t = 0; t < frame_count; t++) {
#pragma HLS LOOP_TRIPCOUNT max = 65535
        const uint32_t first = HOP / 2 * t;
        // Of mirrored samples the first frame needs one behind its window.
        for (; written < first + 2 * HALF_PAIRS + mirrored; written++) {
#pragma HLS PIPELINE II = 2
#pragma HLS LOOP_TRIPCOUNT max = 200
            Emphasised value[2];
            for (unsigned i = 0; i < 2; i++) {
#pragma HLS UNROLL
                const bool inside = written >= before_sound;
                const uint32_t at = 2 * (written - before_sound) + i;
                if (inside && at < count) {
                    const bool there = at < given;
                    const Sample16k sample = there ? samples.read() : Sample16k(0);
                    value[i] = there ? emphasise(sample, before, preemphasis) : Emphasised(0);
                    if (at % HOP == 0) starts[at / HOP % STARTS] = total;
                    if (at % HOP == 1) {
                        heads[at / HOP % STARTS] = there ? emphasise(before, before, preemphasis) : Emphasised(0);
                    }
                    total += sample;
                    before = sample;
                    taken += there;
                    tail[at % TAIL] = value[i];
                } else {
                    value[i] = inside && mirrored ? tail[(2 * count - 2 - at) % TAIL] : Emphasised(0);
                }
            }
            ring[written % RING] = Pair{value[0], value[1]};
            // Pair j behind the first one also makes pair -j of those in front of the sound.
            if (mirrored && written > HALF_PAIRS && written <= 2 * HALF_PAIRS) {
                ring[2 * HALF_PAIRS - written] = Pair{value[0], odd_before};
            }
            odd_before = value[1];
        }
        // Frames that lie inside are full with their last sample.
        const Sum sum = plan.mean_removed ? Sum(total - starts[t % STARTS]) : Sum(0);
        const Emphasised head = plan.emphasised_alone ? heads[t % STARTS] : Emphasised(0);
        const FrameFilter filter{mean_of(sum, preemphasis), plan.emphasised_alone, head};
        log_mel(ring, first % RING, filter, steps, window, n_mels, log_floor, plan, values);
    }
    for (; taken < given; taken++) samples.read();
}

}  // namespace headrace
