// Sine, cosine, tangent and their inverses: operation for operation plan/src/elementary/angle.rs and arc.rs, where the
// methods are explained.
#pragma once
#include "base.cuh"
#include "math.cuh"

// 2^-27: the sine of anything smaller is the angle itself, the cosine 1.
constexpr double ANGLE_MIN = 7.450580596923828e-9;

// x, or -x where `flipped` is all ones.
STEP double with_sign(double x, u64 flipped) { return of_bits(bits_of(x) ^ (flipped & 1ull << 63)); }

// 64 bits of 2/pi from one that is `shift` bits behind the begin of a word.
STEP u64 turn_window(int word, int shift) {
    return turn_bits(word) << shift | (turn_bits(word + 1) >> 1) >> (63 - shift);
}

// Which 512th of a turn x is next to (modulo a turn), and the angle left. x is finite, and at least ANGLE_MIN in size.
STEP u64 turned(double x, Pair& angle) {
    const u64 bits = bits_of(fabs(x));
    // x = whole * 2^e, and the first bit of the window has the weight 2^(1 - e): those before add whole turns.
    const u64 whole = (bits & 0x000fffffffffffffull) | 0x0010000000000000ull;
    const int from = (int)(bits >> 52) - 996, word = from >> 6, shift = from & 63;
    const u64 middle = turn_window(word + 1, shift);
    const u64 below_carry = __umul64hi(whole, turn_window(word + 2, shift));
    const u64 sum = whole * middle + below_carry;
    const u64 carry = sum < below_carry ? 1 : 0;
    const u64 top = __umul64hi(whole, middle) + carry + whole * turn_window(word, shift);
    // Quarters of a turn in two bits, 128ths of a quarter in seven; the nearest of them.
    const u64 at = (top + (1ull << 54)) >> 55;
    u64 high = top - (at << 55);
    // All ones where the rest is below 0, and where x is.
    const u64 below = (u64)((i64)high >> 63), negative = (u64)((i64)bits_of(x) >> 63);
    high = high ^ below;
    const u64 next = sum ^ below;
    const int zeros = __clzll((i64)(high | 1));
    const u64 first = high << zeros | (next >> 1) >> (63 - zeros), last = next << zeros;
    // The first 26 bits, and 53 more, of which the last 15 are of `last`.
    const double part = (double)(first >> 38);
    const double more = (double)((first << 26 | last >> 38) >> 11) * power_of_two(-53);
    const double scale = with_sign(power_of_two(-24 - zeros), below ^ negative);
    const double rest = part * HALF_PI[1] + more * (HALF_PI[0] + HALF_PI[1]);
    const Pair value = pair_sum(part * HALF_PI[0], rest);
    angle = {value.high * scale, value.low * scale};
    return (at ^ negative) - negative;
}

// What a small angle d adds: d in a short part and the rest, sin d - d and cos d - 1.
struct SmallAngle {
    double part;
    double rest;
    double sine;
    double cosine;
};

// -d where `flipped` is all ones.
STEP SmallAngle small_angle(Pair angle, u64 flipped) {
    const double d = with_sign(angle.high, flipped), low = with_sign(angle.low, flipped);
    const double square = d * d, part = upper(d);
    return {part, (d - part) + low, (d * square) * (SIN_POLY[0] + square * (SIN_POLY[1] + square * SIN_POLY[2])),
            square * (COS_POLY[0] + square * (COS_POLY[1] + square * COS_POLY[2]))};
}

// from*cos d + by*sin d of two entries of the table.
STEP Pair angle_moved(Pair from, Pair by, SmallAngle d) {
    const Pair total = pair_sum(from.high, by.high * d.part);
    const double along = by.low * d.part + (by.high + by.low) * (d.rest + d.sine);
    return {total.high, total.low + (from.low + (along + (from.high + from.low) * d.cosine))};
}

// All ones in odd quarters of a turn, the entry of the sine there, and that of the cosine.
STEP u64 angle_entries(u64 at, Pair& from, Pair& by) {
    const u64 odd = 0 - (at >> 7 & 1);
    const int j = (int)((((at & 127) ^ odd) - odd) + (odd & 128));
    from = {sine_table(j, 0), sine_table(j, 1)};
    by = {sine_table(128 - j, 0), sine_table(128 - j, 1)};
    return odd;
}

// The sine of x, and `quarters` of a turn more.
STEP double sine_of(double x, u64 quarters) {
    Pair angle, from, by;
    const u64 at = turned(x, angle) + (quarters << 7);
    const u64 odd = angle_entries(at, from, by);
    const Pair sine = angle_moved(from, by, small_angle(angle, odd));
    return with_sign(pair_value(sine), 0 - (at >> 8 & 1));
}

STEP_CALL double math_sin(double x) {
    if (fabs(x) < ANGLE_MIN) return x;
    return is_finite(x) ? sine_of(x, 0) : na();
}

STEP_CALL double math_cos(double x) {
    if (fabs(x) < ANGLE_MIN) return 1.0;
    return is_finite(x) ? sine_of(x, 1) : na();
}

STEP_CALL double math_tan(double x) {
    if (fabs(x) < ANGLE_MIN) return x;
    if (!is_finite(x)) return na();
    Pair angle, from, by;
    const u64 odd = angle_entries(turned(x, angle), from, by);
    const SmallAngle d = small_angle(angle, odd);
    const Pair sine = angle_moved(from, by, d);
    const Pair cosine = angle_moved(by, from, {-d.part, -d.rest, -d.sine, d.cosine});
    return with_sign(pair_value(pair_over(pair_sum(sine.high, sine.low), pair_sum(cosine.high, cosine.low))), odd);
}

// 2^-27: the arc tangent and arc sine of anything smaller is the number itself.
constexpr double ARC_MIN = 7.450580596923828e-9;

STEP_CALL double math_atan(double x) {
    double size = fabs(x);
    if (size < ARC_MIN) return x;
    if (is_nan(x)) return na();
    // Beyond it the result no longer changes.
    size = size > power_of_two(66) ? power_of_two(66) : size;
    // The smaller one of the angle and its complement has the tangent y/w.
    const bool steep = size > 1.0;
    const double y = smaller(size, 1.0), w = larger(size, 1.0);
    int j;
    const double c = nearest(y / w * 64.0, j) * (1.0 / 64.0);
    const double y_part = upper(y), w_part = upper(w);
    const Pair above = pair_sum(y - c * w_part, -(c * (w - w_part)));
    Pair below = pair_sum(w, c * y_part);
    below = pair_sum(below.high, below.low + c * (y - y_part));
    const Pair t = pair_over(above, below);
    const double square = t.high * t.high;
    const double poly =
        (ATAN_POLY[0] + square * ATAN_POLY[1]) + (square * square) * (ATAN_POLY[2] + square * ATAN_POLY[3]);
    const double more = t.low + (t.high * square) * poly;
    // Steep angles are complements: from the second half of the table, and falling.
    const int entry = j + (steep ? 65 : 0);
    const Pair total = pair_sum(atan_table(entry, 0), steep ? -t.high : t.high);
    return copysign(total.high + (total.low + (atan_table(entry, 1) + (steep ? -more : more))), x);
}

// asin(y + low) where y^2 = u + u_low, for y from 0 to 1/2.
STEP Pair small_arc(double y, double low, double u, double u_low) {
    const double square = u * u, fourth = (u * u) * (u * u);
    const double first = (ASIN_POLY[0] + u * ASIN_POLY[1]) + square * (ASIN_POLY[2] + u * ASIN_POLY[3]);
    const double second = (ASIN_POLY[4] + u * ASIN_POLY[5]) + square * (ASIN_POLY[6] + u * ASIN_POLY[7]);
    const double third = (ASIN_POLY[8] + u * ASIN_POLY[9]) + square * (ASIN_POLY[10] + u * ASIN_POLY[11]);
    const double last = ASIN_POLY[12] + u * ASIN_POLY[13];
    const double more = u * (first + fourth * (second + fourth * (third + fourth * last)));
    Pair factor = pair_sum(SIXTH[0], more);
    factor = pair_sum(factor.high, factor.low + SIXTH[1]);
    const double u_part = upper(u), factor_part = upper(factor.high);
    const Pair product = pair_sum(u_part * factor_part, u_part * ((factor.high - factor_part) + factor.low) +
                                                            ((u - u_part) + u_low) * factor.high);
    const double y_part = upper(y), product_part = upper(product.high);
    const Pair total = pair_sum(y, y_part * product_part);
    const double rest = y_part * ((product.high - product_part) + product.low) + (y - y_part) * product.high;
    return {total.high, total.low + (rest + (low + low * product.high))};
}

// asin x for x from 0 to 1/2; beyond, where it is steep, half of acos x, which is the arc sine of the root of (1 - x)/2.
STEP Pair arc_sine(double x, bool& steep) {
    steep = !(x < 0.5);
    const double y = steep ? sqrt(0.5 * (1.0 - x)) : x;
    const double square = steep ? 0.5 * (1.0 - x) : x * x;
    const double part = upper(y), left = (y - part) * (y + part);
    const double square_low = (part * part - square) + left;
    const double rest = (square - part * part) - left;
    const double low = steep && y > 0.0 ? rest * (0.5 / y) : 0.0;
    return small_arc(y, low, square, steep ? 0.0 : square_low);
}

// `quarters` of a turn and `times` the angle.
STEP double from_quarters(double quarters, double times, Pair angle) {
    const Pair total = pair_sum(quarters * FULL_HALF_PI[0], times * angle.high);
    return total.high + (total.low + (quarters * FULL_HALF_PI[1] + times * angle.low));
}

STEP_CALL double math_asin(double x) {
    const double size = fabs(x);
    if (size < ARC_MIN) return x;
    if (!(size <= 1.0)) return na();
    bool steep;
    const Pair angle = arc_sine(size, steep);
    return copysign(from_quarters(steep ? 1.0 : 0.0, steep ? -2.0 : 1.0, angle), x);
}

STEP_CALL double math_acos(double x) {
    const double size = fabs(x);
    if (!(size <= 1.0)) return na();
    bool steep;
    const Pair angle = arc_sine(size, steep);
    const bool negative = bits_of(x) >> 63;
    // pi/2 - asin x; 2*angle, or pi less that where x is negative.
    const double quarters = steep ? (negative ? 2.0 : 0.0) : 1.0;
    const double times = steep ? 2.0 : -1.0;
    return from_quarters(quarters, negative ? -times : times, angle);
}
