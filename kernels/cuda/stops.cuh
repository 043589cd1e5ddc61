// Stops that trail the price and turn with it. All steps are wide.
#pragma once
#include "base.cuh"

// How fast a stop follows in one direction.
struct Pace {
    double start, step, most;
};

struct HighLow {
    double high, low;

    // As it is, or upside down.
    __device__ __forceinline__ HighLow facing(bool up) const { return up ? *this : HighLow{-low, -high}; }
};

// Wilder's parabolic stop. Inputs high, low. A stop above the price is computed upside down, with both signs changed. ALIKE: both
// directions have the same acceleration.
template <bool ALIKE>
struct Parabolic {
    HighLow before;
    // Bars seen, up to 2.
    int seen;
    bool up;
    double stop, extreme, pace;

    __device__ __forceinline__ void start(int, int) {
        seen = 0;
        up = true;
        before = HighLow{na(), na()};
        stop = extreme = pace = na();
    }

    // The state as of the first bar, once the second one is known: its bounds are the second bar's.
    __device__ __forceinline__ void begin(const HighLow& first, const HighLow& now, double given, const Pace& rising,
                                          const Pace& falling) {
        const double rise = now.high - first.high, fall = first.low - now.low;
        const bool falls = fall > 0.0 && fall > rise;
        up = given == 0.0 ? !falls : given > 0.0;
        const double by_start = up ? fabs(given) : -fabs(given);
        stop = given == 0.0 ? first.facing(up).low : by_start;
        extreme = now.facing(up).high;
        pace = up ? rising.start : falling.start;
    }

    __device__ __forceinline__ double next(double high, double low, int is_signed, double given, double offset,
                                           double rising_start, double rising_step, double rising_most,
                                           double falling_start, double falling_step, double falling_most) {
        if (!is_finite(high) || !is_finite(low)) return na();
        const Pace rising{rising_start, rising_step, rising_most}, falling{falling_start, falling_step, falling_most};
        const HighLow bar{high, low};
        HighLow last = before;
        before = bar;
        if (seen == 0) {
            seen = 1;
            return na();
        }
        if (seen == 1) {
            seen = 2;
            begin(last, bar, given, rising, falling);
            last = bar;
        }
        const HighLow now = bar.facing(up), then = last.facing(up);
        if (now.low > stop) {
            const double shown = is_signed || up ? stop : -1.0 * stop;
            if (now.high > extreme) {
                extreme = now.high;
                const Pace by = up ? rising : falling;
                pace = smaller(by.most, pace + by.step);
            }
            stop = stop + pace * (extreme - stop);
            stop = smaller(now.low, smaller(then.low, stop));
            return shown;
        }
        // The price went through: the other direction begins at the extreme, not inside the last two bars.
        up = !up;
        const HighLow turned = bar.facing(up), turned_then = last.facing(up);
        const double sign = up ? 1.0 : -1.0;
        stop = smaller(turned.low, smaller(turned_then.low, -extreme));
        stop = stop - sign * stop * offset;
        const double shown = is_signed ? stop : sign * stop;
        extreme = turned.high;
        pace = up ? rising.start : falling.start;
        stop = stop + pace * (extreme - stop);
        stop = smaller(turned.low, smaller(turned_then.low, stop));
        return shown;
    }

    __device__ __forceinline__ bool is_settled(int) const { return seen == 2; }

    // The same past the second bar, without branches: both ways are computed as far as they differ.
    __device__ __forceinline__ double next_settled(double high, double low, int is_signed, double, double offset,
                                                   double rising_start, double rising_step, double rising_most,
                                                   double falling_start, double falling_step, double falling_most) {
        const bool here = is_finite(high) & is_finite(low);
        // Bounds of a stop below the price, and of one above it; the order of comparisons does not matter.
        const double under = smaller(low, before.low), over = smaller(-high, -before.high);
        const double ahead = up ? high : -low;
        const bool holds = (up ? low : -high) > stop, further = ahead > extreme;
        const bool as_rising = ALIKE || up;
        const double faster = smaller(as_rising ? rising_most : falling_most, pace + (as_rising ? rising_step : falling_step));
        const double turn = smaller(up ? over : under, -extreme);
        const bool rises = holds == up;
        const double sign = rises ? 1.0 : -1.0;
        const double from = holds ? stop : turn - sign * turn * offset;
        const double beyond = further ? ahead : extreme, quick = further ? faster : pace;
        const double to = holds ? beyond : (up ? -low : high);
        const double by = holds ? quick : (ALIKE || rises ? rising_start : falling_start);
        const double moved = from + by * (to - from);
        const double bounded = smaller(rises ? under : over, moved);
        before.high = here ? high : before.high;
        before.low = here ? low : before.low;
        up = up ^ (here & !holds);
        stop = here ? bounded : stop;
        extreme = here ? to : extreme;
        pace = here ? by : pace;
        return only(is_signed ? from : sign * from, here);
    }
};

// Inputs: upper and lower band before they trail, close. With TREND 1 up and -1 down, else the band that the trend leans on.
template <bool TREND>
struct SuperTrend {
    double upper, lower;
    // NA before the first bar.
    double close;
    bool up;

    __device__ __forceinline__ void start(int, int) {
        upper = lower = close = na();
        up = true;
    }

    __device__ __forceinline__ double next(double now_upper, double now_lower, double now_close) {
        if (!is_finite(now_upper) || !is_finite(now_lower) || !is_finite(now_close)) return na();
        const bool first = is_nan(close);
        if (first || now_upper < upper || close > upper) upper = now_upper;
        if (first || now_lower > lower || close < lower) lower = now_lower;
        if (!first) up = up ? now_close >= lower : now_close > upper;
        close = now_close;
        if (TREND) return up ? 1.0 : -1.0;
        return up ? lower : upper;
    }
};
