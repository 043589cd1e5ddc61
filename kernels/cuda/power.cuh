// Powers with the bits of the CPU's. Method, constants and notice as in math.cuh.
#pragma once
#include "angle.cuh"
#include "base.cuh"
#include "math.cuh"

// Whether y, which is no NaN, is not a whole number (0), odd (1) or even (2).
STEP int parity(double y) {
    const double size = fabs(y);
    if (size >= 9007199254740992.0) return 2;
    if (size < 1.0 || floor(size) != size) return 0;
    return (i64)size & 1 ? 1 : 2;
}

// 2 to the power of `whole + part`, times `sign`.
STEP double exp2_of(double product, double rest, double sign) {
    const double huge = 1.0e300, tiny = 1.0e-300;
    const double z = rest + product;
    int j = (int)high_word(z);
    const u32 low = low_word(z);
    if (j >= 0x40900000) {
        if ((u32)(j - 0x40900000) | low) return sign * huge * huge;
        if (rest + 8.0085662595372944372e-017 > z - product) return sign * huge * huge;
    } else if ((j & 0x7fffffff) >= 0x4090cc00) {
        if (((u32)j - 0xc090cc00u) | low) return sign * tiny * tiny;
        if (rest <= z - product) return sign * tiny * tiny;
    }
    const int size = j & 0x7fffffff;
    int k = (size >> 20) - 0x3ff, n = 0;
    if (size > 0x3fe00000) {
        n = j + (0x00100000 >> (k + 1));
        k = ((n & 0x7fffffff) >> 20) - 0x3ff;
        const double t = with_high_word(0.0, (u32)(n & ~(0x000fffff >> k)));
        n = ((n & 0x000fffff) | 0x00100000) >> (20 - k);
        if (j < 0) n = -n;
        product = product - t;
    }
    const double t = coarse(rest + product);
    const double u = t * 6.93147182464599609375e-01;
    const double v = (rest - (t - product)) * 6.93147180559945286227e-01 + t * -1.90465429995776804525e-09;
    double value = u + v;
    const double w = v - (value - u);
    const double square = value * value;
    const double t1 =
        value - square * (1.66666666666666019037e-01 +
                          square * (-2.77777777770155933842e-03 +
                                    square * (6.61375632143793436117e-05 +
                                              square * (-1.65339022054652515390e-06 + square * 4.13813679705723846039e-08))));
    const double r = (value * t1) / (t1 - 2.0) - (w + value * w);
    value = 1.0 - (r - value);
    j = (int)high_word(value) + (int)((u32)n << 20);
    value = (j >> 20) <= 0 ? scaled(value, n) : with_high_word(value, (u32)j);
    return sign * value;
}

STEP_CALL double math_pow(double x, double y) {
    const double huge = 1.0e300, tiny = 1.0e-300;
    if (y == 0.0 || x == 1.0) return 1.0;
    if (is_nan(x) || is_nan(y)) return x + y;
    const double size = fabs(x);
    const bool below = high_word(x) >> 31;
    const int yields = below ? parity(y) : 0;
    if (fabs(y) == infinity()) {
        if (size == 1.0) return 1.0;
        return (size > 1.0) == (y > 0.0) ? infinity() : 0.0;
    }
    if (y == 1.0) return x;
    if (y == -1.0) return 1.0 / x;
    if (y == 2.0) return x * x;
    if (y == 0.5 && !below) return sqrt(x);
    if (size == infinity() || size == 0.0 || size == 1.0) {
        double z = y < 0.0 ? 1.0 / size : size;
        if (below) {
            if (size == 1.0 && yields == 0) return (z - z) / (z - z);
            if (yields == 1) z = -z;
        }
        return z;
    }
    double sign = 1.0;
    if (below) {
        if (yields == 0) return (x - x) / (x - x);
        if (yields == 1) sign = -1.0;
    }
    // The logarithm to the base of 2 as t1 + t2.
    double t1, t2;
    const u32 high_y = high_word(y) & 0x7fffffffu;
    u32 high = high_word(size);
    if (high_y > 0x41e00000u) {
        const bool up = !(high_word(y) >> 31);
        if (high_y > 0x43f00000u) {
            if (high <= 0x3fefffffu) return up ? tiny * tiny : huge * huge;
            return up ? huge * huge : tiny * tiny;
        }
        if (high < 0x3fefffffu) return up ? sign * tiny * tiny : sign * huge * huge;
        if (high > 0x3ff00000u) return up ? sign * huge * huge : sign * tiny * tiny;
        const double t = size - 1.0;
        const double w = (t * t) * (0.5 - t * (0.3333333333333333333333 - t * 0.25));
        const double u = 1.44269502162933349609e+00 * t;
        const double v = t * 1.92596299112661746887e-08 - w * 1.44269504088896338700e+00;
        t1 = coarse(u + v);
        t2 = v - (t1 - u);
    } else {
        double ax = size;
        int n = 0;
        if (high < 0x00100000u) {
            ax = ax * 9007199254740992.0;
            n = -53;
            high = high_word(ax);
        }
        n = n + (int)(high >> 20) - 0x3ff;
        const u32 fraction = high & 0x000fffffu;
        high = fraction | 0x3ff00000u;
        bool half = false;
        if (fraction > 0x3988eu) {
            if (fraction < 0xbb67au) {
                half = true;
            } else {
                n = n + 1;
                high = high - 0x00100000u;
            }
        }
        ax = with_high_word(ax, high);
        const double bp = half ? 1.5 : 1.0;
        const double dp_high = half ? 5.84962487220764160156e-01 : 0.0, dp_low = half ? 1.35003920212974897128e-08 : 0.0;
        const double u = ax - bp, v = 1.0 / (ax + bp), ss = u * v, s_high = coarse(ss);
        double t_high = with_high_word(0.0, ((high >> 1) | 0x20000000u) + 0x00080000u + ((half ? 1u : 0u) << 18));
        double t_low = ax - (t_high - bp);
        const double s_low = v * ((u - s_high * t_high) - s_high * t_low);
        double square = ss * ss;
        double r = square * square *
                   (5.99999999999994648725e-01 +
                    square * (4.28571428578550184252e-01 +
                              square * (3.33333329818377432918e-01 +
                                        square * (2.72728123808534006489e-01 +
                                                  square * (2.30660745775561754067e-01 + square * 2.06975017800338417784e-01)))));
        r = r + s_low * (s_high + ss);
        square = s_high * s_high;
        t_high = coarse(3.0 + square + r);
        t_low = r - ((t_high - 3.0) - square);
        const double uu = s_high * t_high, vv = s_low * t_high + t_low * ss;
        const double p_high = coarse(uu + vv), p_low = vv - (p_high - uu);
        const double z_high = 9.61796700954437255859e-01 * p_high;
        const double z_low = -7.02846165095275826516e-09 * p_high + p_low * 9.61796693925975554329e-01 + dp_low;
        const double t = (double)n;
        t1 = coarse(((z_high + z_low) + dp_high) + t);
        t2 = z_low - (((t1 - t) - dp_high) - z_high);
    }
    const double y1 = coarse(y);
    return exp2_of(y1 * t1, (y - y1) * t1 + y * t2, sign);
}

// Undefined for NA, even NA^0, and where 0 is divided by.
STEP double step_power(double a, double b) {
    return is_nan(a) || is_nan(b) || (a == 0.0 && b < 0.0) ? na() : math_pow(a, b);
}
STEP double step_log(double a) { return a > 0.0 ? math_log(a) : na(); }
STEP double step_exp(double a) { return math_exp(a); }
STEP double step_ln(double a) { return math_log(a); }
STEP double step_log10(double a) { return math_log10(a); }
STEP double step_sin(double a) { return math_sin(a); }
STEP double step_cos(double a) { return math_cos(a); }
STEP double step_tan(double a) { return math_tan(a); }
STEP double step_asin(double a) { return math_asin(a); }
STEP double step_acos(double a) { return math_acos(a); }
STEP double step_atan(double a) { return math_atan(a); }
STEP double step_sinh(double a) { return math_sinh(a); }
STEP double step_cosh(double a) { return math_cosh(a); }
STEP double step_tanh(double a) { return math_tanh(a); }
