// Ehlers' dominant cycle by the Hilbert transform, and the adaptive mean that follows its phase, as TA-Lib has them. Sums
// are taken in TA-Lib's order: over prices that stand still the period is rounding, and has to be the same rounding.
#pragma once
#include "angle.cuh"
#include "base.cuh"
#include "math.cuh"

constexpr int CYCLE_PERIOD = 0, CYCLE_IN_PHASE = 1, CYCLE_QUADRATURE = 2, CYCLE_PHASE = 3, CYCLE_SINE = 4,
              CYCLE_LEAD_SINE = 5, CYCLE_TRENDLINE = 6, CYCLE_TREND_MODE = 7;

// Bars before the first transform, and before the first output.
constexpr int EARLY_WARM_UP = 12, LATE_WARM_UP = 37, EARLY_LOOK_BACK = 32, LATE_LOOK_BACK = 63;
// The longest period.
constexpr int PERIOD_MAX = 50;
constexpr double DEGREES = 45.0 / 0.78539816339744830962;
constexpr double RADIANS = 1.0 / DEGREES;

// The last N values in registers, 0 before the first.
template <int N>
struct Recent {
    double values[N];

    __device__ __forceinline__ void start() {
        for (int i = 0; i < N; ++i) values[i] = 0.0;
    }

    __device__ __forceinline__ void push(double x) {
        for (int i = N - 1; i > 0; --i) values[i] = values[i - 1];
        values[0] = x;
    }

    // The value pushed so many pushes ago, the newest being 1.
    __device__ __forceinline__ double back(int bars) const { return values[bars - 1]; }

    // The Hilbert transform of a series `delay` bars late, whose value is now `now`.
    __device__ __forceinline__ double transform(double now, int delay, double gain) const {
        // Weights of the transform's inner and outer pair of bars.
        const double inner = 0.5769, outer = 0.0962;
        const double ends = outer * now - outer * back(delay + 6);
        return (ends - inner * back(delay + 4) + inner * back(delay + 2)) * gain;
    }
};

// The weighted mean of four bars as a running sum.
struct Smoother {
    int seen;
    double sum, weighted, leaving;
    Recent<3> past;

    __device__ __forceinline__ void start() {
        seen = 0;
        sum = weighted = leaving = 0.0;
        past.start();
    }

    // Takes the next bar; the mean is one from the fourth bar on.
    __device__ __forceinline__ double next(double x) {
        sum = sum + x;
        if (seen < 3) {
            ++seen;
            weighted = weighted + x * (double)seen;
            past.push(x);
            return 0.0;
        }
        sum = sum - leaving;
        weighted = weighted + x * 4.0;
        const double mean = weighted * 0.1;
        leaving = past.back(3);
        weighted = weighted - sum;
        past.push(x);
        return mean;
    }
};

// The transforms and the period.
struct Transforms {
    int warm_up;
    Smoother smoother;
    Recent<6> smooths;
    Recent<9> detrendeds;
    Recent<6> quadratures;
    double i2, q2, re, im, period;
    // Of the last bar.
    double smooth, in_phase, quadrature;

    __device__ __forceinline__ void start(int bars) {
        warm_up = bars;
        smoother.start();
        smooths.start();
        detrendeds.start();
        quadratures.start();
        i2 = q2 = re = im = period = smooth = in_phase = quadrature = 0.0;
    }

    // Whether there are transforms of the bar.
    __device__ __forceinline__ bool next(double x) {
        smooth = smoother.next(x);
        if (warm_up > 0) {
            --warm_up;
            return false;
        }
        const double gain = 0.075 * period + 0.54;
        const double detrended = smooths.transform(smooth, 0, gain);
        quadrature = detrendeds.transform(detrended, 0, gain);
        in_phase = detrendeds.back(3);
        const double ahead_i = detrendeds.transform(in_phase, 3, gain);
        const double ahead_q = quadratures.transform(quadrature, 0, gain);
        smooths.push(smooth);
        detrendeds.push(detrended);
        quadratures.push(quadrature);
        const double now_q2 = 0.2 * (quadrature + ahead_i) + 0.8 * q2;
        const double now_i2 = 0.2 * (in_phase - ahead_q) + 0.8 * i2;
        re = 0.2 * (now_i2 * i2 + now_q2 * q2) + 0.8 * re;
        im = 0.2 * (now_i2 * q2 - now_q2 * i2) + 0.8 * im;
        q2 = now_q2;
        i2 = now_i2;
        period = next_period();
        return true;
    }

    __device__ __forceinline__ double next_period() const {
        double next = period;
        if (im != 0.0 && re != 0.0) next = 360.0 / (math_atan(im / re) * DEGREES);
        if (next > 1.5 * period) next = 1.5 * period;
        if (next < 0.67 * period) next = 0.67 * period;
        const double held = next < 6.0 ? 6.0 : next > (double)PERIOD_MAX ? (double)PERIOD_MAX : next;
        return 0.2 * held + 0.8 * period;
    }
};

// The dominant cycle. `circles`: sine and cosine of the i-th of n equal parts of a circle at 2*(n*PERIOD_MAX + i), made by
// the host; the rings keep prices and smoothed prices, the newest at the slot that was pushed last.
template <int RESULT>
struct Hilbert {
    static constexpr bool EARLY = RESULT <= CYCLE_QUADRATURE;
    int seen;
    Transforms transforms;
    History prices, smooths;
    double period, phase, sine, lead, bars_in_trend;
    Recent<3> means;

    __device__ __forceinline__ void start(int, int) {
        seen = 0;
        transforms.start(EARLY ? EARLY_WARM_UP : LATE_WARM_UP);
        prices.start(0);
        smooths.start(0);
        period = phase = sine = lead = bars_in_trend = 0.0;
        means.start();
    }

    // Whole bars of the period.
    __device__ __forceinline__ int bars() const {
        const double whole = period + 0.5;
        return whole >= 1.0 ? (int)smaller(whole, (double)PERIOD_MAX) : 0;
    }

    // The value pushed `i` of `pushes` pushes ago, 0 before the first.
    static __device__ __forceinline__ double back(const History& history, const WideRing& ring, int i, int pushes) {
        const int at = history.now - i;
        return i < pushes ? ring[at < 0 ? at + PERIOD_MAX : at] : 0.0;
    }

    __device__ __forceinline__ double next_phase(const double* circles, const WideRing& smooth_ring) const {
        double real = 0.0, imaginary = 0.0;
        const int n = bars();
        for (int i = 0; i < n; ++i) {
            const double price = back(smooths, smooth_ring, i, seen - LATE_WARM_UP);
            const double* part = circles + 2 * (n * PERIOD_MAX + i);
            real = real + part[0] * price;
            imaginary = imaginary + part[1] * price;
        }
        double next = phase;
        if (fabs(imaginary) > 0.0) {
            next = math_atan(real / imaginary) * DEGREES;
        } else if (real < 0.0) {
            next = next - 90.0;
        } else if (real > 0.0) {
            next = next + 90.0;
        }
        next = next + 90.0;
        // The smoother is one bar late.
        next = next + 360.0 / period;
        if (imaginary < 0.0) next = next + 180.0;
        return next > 315.0 ? next - 360.0 : next;
    }

    __device__ __forceinline__ double next_trendline(const WideRing& price_ring) {
        const int n = bars();
        double sum = 0.0;
        for (int i = 0; i < n; ++i) sum = sum + back(prices, price_ring, i, seen);
        const double mean = n > 0 ? sum / (double)n : sum;
        const double line = (4.0 * mean + 3.0 * means.back(1) + 2.0 * means.back(2) + means.back(3)) / 10.0;
        means.push(mean);
        return line;
    }

    // 1 or 0, from what the bar changed.
    __device__ __forceinline__ double trend_mode(double phase_before, double sine_before, double lead_before,
                                                 double line) {
        const bool up = sine > lead && sine_before <= lead_before;
        const bool down = sine < lead && sine_before >= lead_before;
        bool cycles = up || down;
        if (cycles) bars_in_trend = 0.0;
        bars_in_trend = bars_in_trend + 1.0;
        cycles = cycles || bars_in_trend < 0.5 * period;
        const double turn = phase - phase_before;
        cycles = cycles || (period != 0.0 && turn > 0.67 * 360.0 / period && turn < 1.5 * 360.0 / period);
        const bool far = line != 0.0 && fabs((transforms.smooth - line) / line) >= 0.015;
        return truth(far || !cycles);
    }

    __device__ __forceinline__ double next(double x, const double* circles, const WideRing& price_ring,
                                           const WideRing& smooth_ring) {
        if (!is_finite(x)) return na();
        ++seen;
        if (!EARLY) prices.push(x, price_ring);
        if (!transforms.next(x)) return na();
        if (!EARLY) smooths.push(transforms.smooth, smooth_ring);
        period = 0.33 * transforms.period + 0.67 * period;
        double value = period;
        if (RESULT == CYCLE_IN_PHASE) value = transforms.in_phase;
        if (RESULT == CYCLE_QUADRATURE) value = transforms.quadrature;
        if (RESULT == CYCLE_TRENDLINE) value = next_trendline(price_ring);
        if (!EARLY && RESULT != CYCLE_TRENDLINE) {
            const double phase_before = phase, sine_before = sine, lead_before = lead;
            phase = next_phase(circles, smooth_ring);
            value = phase;
            if (RESULT == CYCLE_SINE) value = math_sin((phase + 0.0) * RADIANS);
            if (RESULT == CYCLE_LEAD_SINE) value = math_sin((phase + 45.0) * RADIANS);
            if (RESULT == CYCLE_TREND_MODE) {
                sine = math_sin((phase + 0.0) * RADIANS);
                lead = math_sin((phase + 45.0) * RADIANS);
                value = trend_mode(phase_before, sine_before, lead_before, next_trendline(price_ring));
            }
        }
        return only(value, seen > (EARLY ? EARLY_LOOK_BACK : LATE_LOOK_BACK));
    }
};

// The adaptive mean whose factor is `fast` over the phase's change in degrees, at least `slow`; with FAMA the mean of it.
template <bool FAMA>
struct Mesa {
    int seen;
    Transforms transforms;
    double phase, mama, fama;

    __device__ __forceinline__ void start(int, int) {
        seen = 0;
        transforms.start(EARLY_WARM_UP);
        phase = mama = fama = 0.0;
    }

    __device__ __forceinline__ double next(double x, double fast, double slow) {
        if (!is_finite(x)) return na();
        ++seen;
        if (!transforms.next(x)) return na();
        const double in_phase = transforms.in_phase;
        const double now = in_phase == 0.0 ? 0.0 : math_atan(transforms.quadrature / in_phase) * DEGREES;
        const double change = phase - now;
        phase = now;
        double factor = fast;
        if (change > 1.0) factor = larger(slow, fast / change);
        mama = factor * x + (1.0 - factor) * mama;
        const double half = factor * 0.5;
        fama = half * mama + (1.0 - half) * fama;
        return only(FAMA ? fama : mama, seen > EARLY_LOOK_BACK);
    }
};
