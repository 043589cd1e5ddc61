// Sines, cosines and tangents with the bits of the CPU's: methods and constants of FreeBSD's msun, as in math.cuh, under this
// notice:
//
// ====================================================
// Copyright (C) 1993, 2004 by Sun Microsystems, Inc. All rights reserved.
//
// Developed at SunSoft and SunPro, Sun Microsystems, Inc. businesses.
// Permission to use, copy, modify, and distribute this
// software is freely granted, provided that this notice
// is preserved.
// ====================================================
#pragma once
#include "base.cuh"
#include "math.cuh"

// Sine of x + y between -pi/4 and pi/4; `tail`: whether y is not 0.
STEP double sine_part(double x, double y, bool tail) {
    const double z = x * x, w = z * z;
    const double r = 8.33333333332248946124e-03 + z * (-1.98412698298579493134e-04 + z * 2.75573137070700676789e-06) +
                     z * w * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10);
    const double v = z * x, first = -1.66666666666666324348e-01;
    return tail ? x - ((z * (0.5 * y - v * r) - y) - v * first) : x + v * (first + z * r);
}

// Cosine of x + y between -pi/4 and pi/4.
STEP double cosine_part(double x, double y) {
    const double z = x * x, w = z * z;
    const double r = z * (4.16666666666666019037e-02 + z * (-1.38888888888741095749e-03 + z * 2.48015872894767294178e-05)) +
                     w * w * (-2.75573143513906633035e-07 + z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11));
    const double half = 0.5 * z, rest = 1.0 - half;
    return rest + (((1.0 - rest) - half) + (z * r - x * y));
}

// Tangent of x + y between -pi/4 and pi/4, or with `odd` -1 over it.
STEP double tangent_part(double x, double y, bool odd) {
    const bool below = high_word(x) >> 31, big = (high_word(x) & 0x7fffffffu) >= 0x3fe59428u;
    if (big) {
        if (below) {
            x = -x;
            y = -y;
        }
        x = (7.85398163397448278999e-01 - x) + (3.06161699786838301793e-17 - y);
        y = 0.0;
    }
    const double z = x * x, square = z * z;
    const double even =
        1.33333333333201242699e-01 +
        square * (2.18694882948595424599e-02 +
                  square * (3.59207910759131235356e-03 +
                            square * (5.88041240820264096874e-04 +
                                      square * (7.81794442939557092300e-05 + square * -1.85586374855275456654e-05))));
    const double uneven =
        z * (5.39682539762260521377e-02 +
             square * (8.86323982359930005737e-03 +
                       square * (1.45620945432529025516e-03 +
                                 square * (2.46463134818469906812e-04 +
                                           square * (7.14072491382608190305e-05 + square * 2.59073051863633712884e-05)))));
    const double s = z * x;
    const double r = y + z * (s * (even + uneven) + y) + s * 3.33333333333334091986e-01;
    const double w = x + r;
    if (big) {
        const double sign = odd ? -1.0 : 1.0;
        const double value = sign - 2.0 * (x + (r - w * w / (w + sign)));
        return below ? -value : value;
    }
    if (!odd) return w;
    const double w_high = coarse(w), v = r - (w_high - x), a = -1.0 / w, a_high = coarse(a);
    return a_high + a * (1.0 + a_high * w_high + a_high * v);
}

// x less n times pi/2, as the sum of two numbers; n modulo 4 is given. For sizes up to 2^20 * pi/2.
STEP int circle_reduced(double x, u32 high, double& y, double& tail) {
    const double to_int = 1.5 / 2.2204460492503131e-16;
    const double turns = (x * 6.36619772367581382433e-01 + to_int) - to_int;
    double r = x - turns * 1.57079632673412561417e+00, w = turns * 6.07710050650619224932e-11;
    y = r - w;
    const int exponent = (int)(high >> 20);
    if (exponent - (int)(high_word(y) >> 20 & 0x7ffu) > 16) {
        double t = r;
        w = turns * 6.07710050630396597660e-11;
        r = t - w;
        w = turns * 2.02226624879595063154e-21 - ((t - r) - w);
        y = r - w;
        if (exponent - (int)(high_word(y) >> 20 & 0x7ffu) > 49) {
            t = r;
            w = turns * 2.02226624871116645580e-21;
            r = t - w;
            w = turns * 8.47842766036889956997e-32 - ((t - r) - w);
            y = r - w;
        }
    }
    tail = (r - y) - w;
    return (int)turns;
}

// The first bits of 2/pi, 24 at a time.
static __device__ const int TWO_OVER_PI[66] = {
    0xA2F983, 0x6E4E44, 0x1529FC, 0x2757D1, 0xF534DD, 0xC0DB62, 0x95993C, 0x439041, 0xFE5163, 0xABDEBB, 0xC561B7,
    0x246E3A, 0x424DD2, 0xE00649, 0x2EEA09, 0xD1921C, 0xFE1DEB, 0x1CB129, 0xA73EE8, 0x8235F5, 0x2EBB44, 0x84E99C,
    0x7026B4, 0x5F7E41, 0x3991D6, 0x398353, 0x39F49C, 0x845F8B, 0xBDF928, 0x3B1FF8, 0x97FFDE, 0x05980F, 0xEF2F11,
    0x8B5A0A, 0x6D1F6D, 0x367ECF, 0x27CB09, 0xB74F46, 0x3F669E, 0x5FEA2D, 0x7527BA, 0xC7EBE5, 0xF17B3D, 0x0739F7,
    0x8A5292, 0xEA6BFB, 0x5FB11F, 0x8D5D08, 0x560330, 0x46FC7B, 0x6BABF0, 0xCFBC20, 0x9AF436, 0x1DA9E3, 0x91615E,
    0xE61B08, 0x659985, 0x5F14A0, 0x68408D, 0xFFD880, 0x4D7327, 0x310606, 0x1556CA, 0x73A8C9, 0x60E27B, 0xC08C6B,
};

// Pi/2 in parts of 24 bits.
static __device__ const double HALF_PI_PARTS[5] = {
    1.57079625129699707031e+00, 7.54978941586159635335e-08, 5.39030252995776476554e-15,
    3.28200341580791294123e-22, 1.27065575308067607349e-29,
};

// As `circle_reduced`, of the size of any x beyond that.
STEP_CALL int circle_reduced_far(double x, u32 high, double& y, double& tail) {
    // Digits of x to the base of 2^24.
    const double base = power_of_two(24), unit = power_of_two(-24);
    double digits[3], z = of_bits((bits_of(x) & 0x000fffffffffffffull) | (u64)(0x3ff + 23) << 52);
    for (int i = 0; i < 2; ++i) {
        digits[i] = (double)(int)z;
        z = (z - digits[i]) * base;
    }
    digits[2] = z;
    int last = 2;
    while (last != 0 && digits[last] == 0.0) --last;
    const int e0 = (int)(high >> 20) - (0x3ff + 23);

    const int terms = 4;
    const int skipped = e0 < 3 ? 0 : (e0 - 3) / 24;
    int q0 = e0 - 24 * (skipped + 1);
    double f[20], q[20], fq[20];
    int iq[20];
    for (int i = 0; i <= last + terms; ++i) {
        const int at = skipped - last + i;
        f[i] = at < 0 ? 0.0 : (double)TWO_OVER_PI[at];
    }
    for (int i = 0; i <= terms; ++i) {
        double sum = 0.0;
        for (int j = 0; j <= last; ++j) sum = sum + digits[j] * f[last + i - j];
        q[i] = sum;
    }
    int jz = terms, n = 0, half = 0;
    for (;;) {
        z = q[jz];
        for (int i = 0, j = jz; j > 0; ++i, --j) {
            const double whole = (double)(int)(unit * z);
            iq[i] = (int)(z - base * whole);
            z = q[j - 1] + whole;
        }
        z = scaled(z, q0);
        z = z - 8.0 * floor(z * 0.125);
        n = (int)z;
        z = z - (double)n;
        half = 0;
        if (q0 > 0) {
            const int i = iq[jz - 1] >> (24 - q0);
            n = n + i;
            iq[jz - 1] -= i << (24 - q0);
            half = iq[jz - 1] >> (23 - q0);
        } else if (q0 == 0) {
            half = iq[jz - 1] >> 23;
        } else if (z >= 0.5) {
            half = 2;
        }
        if (half > 0) {
            n = n + 1;
            bool carry = false;
            for (int i = 0; i < jz; ++i) {
                const int j = iq[i];
                if (carry) {
                    iq[i] = 0xffffff - j;
                } else if (j != 0) {
                    carry = true;
                    iq[i] = 0x1000000 - j;
                }
            }
            if (q0 == 1) iq[jz - 1] &= 0x7fffff;
            if (q0 == 2) iq[jz - 1] &= 0x3fffff;
            if (half == 2) {
                z = 1.0 - z;
                if (carry) z = z - scaled(1.0, q0);
            }
        }
        if (z != 0.0) break;
        int any = 0;
        for (int i = jz - 1; i >= terms; --i) any |= iq[i];
        if (any != 0) break;
        // All digits cancelled: more of them.
        int more = 1;
        while (iq[terms - more] == 0) ++more;
        for (int i = jz + 1; i <= jz + more; ++i) {
            f[last + i] = (double)TWO_OVER_PI[skipped + i];
            double sum = 0.0;
            for (int j = 0; j <= last; ++j) sum = sum + digits[j] * f[last + i - j];
            q[i] = sum;
        }
        jz = jz + more;
    }
    if (z == 0.0) {
        jz = jz - 1;
        q0 = q0 - 24;
        while (iq[jz] == 0) {
            jz = jz - 1;
            q0 = q0 - 24;
        }
    } else {
        z = scaled(z, -q0);
        if (z >= base) {
            const double whole = (double)(int)(unit * z);
            iq[jz] = (int)(z - base * whole);
            jz = jz + 1;
            q0 = q0 + 24;
            iq[jz] = (int)whole;
        } else {
            iq[jz] = (int)z;
        }
    }
    double scale = scaled(1.0, q0);
    for (int i = jz; i >= 0; --i) {
        q[i] = scale * (double)iq[i];
        scale = scale * unit;
    }
    for (int i = jz; i >= 0; --i) {
        double sum = 0.0;
        for (int k = 0; k <= terms && k <= jz - i; ++k) sum = sum + HALF_PI_PARTS[k] * q[i + k];
        fq[jz - i] = sum;
    }
    double sum = 0.0;
    for (int i = jz; i >= 0; --i) sum = sum + fq[i];
    y = half == 0 ? sum : -sum;
    double rest = fq[0] - sum;
    for (int i = 1; i <= jz; ++i) rest = rest + fq[i];
    tail = half == 0 ? rest : -rest;
    return n & 7;
}

// Any finite x less n times pi/2.
STEP_CALL int circle(double x, double& y, double& tail) {
    const u32 high = high_word(x) & 0x7fffffffu;
    const bool below = high_word(x) >> 31;
    if (high >= 0x413921fbu) {
        const int n = circle_reduced_far(fabs(x), high, y, tail);
        if (!below) return n;
        y = -y;
        tail = -tail;
        return -n;
    }
    // Small angles that lie near no multiple: one subtraction is exact enough.
    int n = 0;
    if (high <= 0x400f6a7au) {
        if ((high & 0xfffffu) != 0x921fbu) n = high <= 0x4002d97cu ? 1 : 2;
    } else if (high <= 0x401c463bu) {
        if (high <= 0x4015fdbcu) {
            n = high == 0x4012d97cu ? 0 : 3;
        } else {
            n = high == 0x401921fbu ? 0 : 4;
        }
    }
    if (n == 0) return circle_reduced(x, high, y, tail);
    const double turns = below ? -(double)n : (double)n;
    const double z = x - turns * 1.57079632673412561417e+00, low = turns * 6.07710050650619224932e-11;
    y = z - low;
    tail = (z - y) - low;
    return below ? -n : n;
}

STEP_CALL double math_sin(double x) {
    const u32 high = high_word(x) & 0x7fffffffu;
    if (high <= 0x3fe921fbu) return high < 0x3e500000u ? x : sine_part(x, 0.0, false);
    if (high >= 0x7ff00000u) return x - x;
    double y, tail;
    const int n = circle(x, y, tail) & 3;
    const double part = n & 1 ? cosine_part(y, tail) : sine_part(y, tail, true);
    return n & 2 ? -part : part;
}

STEP_CALL double math_cos(double x) {
    const u32 high = high_word(x) & 0x7fffffffu;
    if (high <= 0x3fe921fbu) return high < 0x3e46a09eu ? 1.0 : cosine_part(x, 0.0);
    if (high >= 0x7ff00000u) return x - x;
    double y, tail;
    const int n = circle(x, y, tail) & 3;
    const double part = n & 1 ? sine_part(y, tail, true) : cosine_part(y, tail);
    return n == 1 || n == 2 ? -part : part;
}

STEP_CALL double math_tan(double x) {
    const u32 high = high_word(x) & 0x7fffffffu;
    if (high <= 0x3fe921fbu) return high < 0x3e400000u ? x : tangent_part(x, 0.0, false);
    if (high >= 0x7ff00000u) return x - x;
    double y, tail;
    const int n = circle(x, y, tail);
    return tangent_part(y, tail, n & 1);
}
