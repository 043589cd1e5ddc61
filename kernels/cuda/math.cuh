// Transcendental functions with the bits of the CPU's, which takes them from Rust's libm: the toolkit's own differ in the
// last place, and there is no say over when they change. The methods and constants are those of FreeBSD's msun, as in
// Rust's libm and in musl, under this notice:
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

#define STEP_CALL static __device__ __noinline__

STEP u32 high_word(double x) { return (u32)(bits_of(x) >> 32); }
STEP u32 low_word(double x) { return (u32)bits_of(x); }
STEP double with_high_word(double x, u32 high) { return of_bits((u64)high << 32 | low_word(x)); }
// The first half of the bits, the rest 0.
STEP double coarse(double x) { return of_bits(bits_of(x) & 0xffffffff00000000ull); }
// 2 to the power of n, which must be a normal number's.
STEP double power_of_two(int n) { return of_bits((u64)(0x3ff + n) << 52); }

// x times 2 to the power of n, rounded once.
STEP double scaled(double x, int n) {
    for (int i = 0; i < 2 && n > 1023; ++i) {
        x = x * power_of_two(1023);
        n = n - 1023;
    }
    for (int i = 0; i < 2 && n < -1022; ++i) {
        x = x * (power_of_two(-1022) * power_of_two(53));
        n = n + 969;
    }
    n = n > 1023 ? 1023 : n < -1022 ? -1022 : n;
    return x * power_of_two(n);
}

// f and k with x = 2^k * (1 + f), the second factor between the roots of 1/2 and 2; what needs no reduction at `done`.
STEP double log_reduced(double x, int& k, double& done, bool& is_done) {
    u32 high = high_word(x);
    k = 0;
    is_done = true;
    if (high < 0x00100000u || high >> 31) {
        if (bits_of(x) << 1 == 0) {
            done = -1.0 / (x * x);
            return 0.0;
        }
        if (high >> 31) {
            done = na();
            return 0.0;
        }
        // Below the normal numbers.
        k = -54;
        x = x * power_of_two(54);
        high = high_word(x);
    } else if (high >= 0x7ff00000u) {
        done = x;
        return 0.0;
    } else if (x == 1.0) {
        done = 0.0;
        return 0.0;
    }
    is_done = false;
    high = high + (0x3ff00000u - 0x3fe6a09eu);
    k = k + (int)(high >> 20) - 0x3ff;
    high = (high & 0x000fffffu) + 0x3fe6a09eu;
    return with_high_word(x, high) - 1.0;
}

// The polynomial that both logarithms share, of s = f/(2 + f).
STEP double log_series(double s) {
    const double z = s * s, w = z * z;
    const double even = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
    const double odd = z * (6.666666666666735130e-01 +
                            w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
    return odd + even;
}

STEP_CALL double math_log(double x) {
    int k;
    double done;
    bool is_done;
    const double f = log_reduced(x, k, done, is_done);
    if (is_done) return done;
    const double half_square = 0.5 * f * f, s = f / (2.0 + f), r = log_series(s), dk = (double)k;
    return s * (half_square + r) + dk * 1.90821492927058770002e-10 - half_square + f + dk * 6.93147180369123816490e-01;
}

STEP_CALL double math_log10(double x) {
    int k;
    double done;
    bool is_done;
    const double f = log_reduced(x, k, done, is_done);
    if (is_done) return done;
    const double inverse_high = 4.34294481878168880939e-01, inverse_low = 2.50829467116452752298e-11;
    const double half_square = 0.5 * f * f, s = f / (2.0 + f), r = log_series(s), dk = (double)k;
    const double high = coarse(f - half_square);
    const double low = f - high - half_square + s * (half_square + r);
    const double value = high * inverse_high, y = dk * 3.01029995663611771306e-01;
    const double rest = dk * 3.69423907715893078616e-13 + (low + high) * inverse_low + low * inverse_high;
    const double sum = y + value;
    return rest + ((y - sum) + value) + sum;
}

STEP_CALL double math_exp(double x) {
    const u32 high = high_word(x) & 0x7fffffffu;
    const bool below = high_word(x) >> 31;
    if (high >= 0x4086232bu) {
        if (is_nan(x)) return x;
        if (x > 709.782712893383973096) return x * power_of_two(1023);
        if (x < -745.13321910194110842) return 0.0;
    }
    int k = 0;
    double hi = x, lo = 0.0;
    if (high > 0x3fd62e42u) {
        if (high >= 0x3ff0a2b2u) {
            k = (int)(1.44269504088896338700e+00 * x + (below ? -0.5 : 0.5));
        } else {
            k = below ? -1 : 1;
        }
        hi = x - (double)k * 6.93147180369123816490e-01;
        lo = (double)k * 1.90821492927058770002e-10;
        x = hi - lo;
    } else if (high <= 0x3e300000u) {
        return 1.0 + x;
    }
    const double xx = x * x;
    const double c =
        x - xx * (1.66666666666666019037e-01 +
                  xx * (-2.77777777770155933842e-03 +
                        xx * (6.61375632143793436117e-05 +
                              xx * (-1.65339022054652515390e-06 + xx * 4.13813679705723846039e-08))));
    const double y = 1.0 + (x * c / (2.0 - c) - lo + hi);
    return k == 0 ? y : scaled(y, k);
}

// e^x - 1.
STEP_CALL double math_expm1(double x) {
    const double ln2_high = 6.93147180369123816490e-01, ln2_low = 1.90821492927058770002e-10;
    const u32 high = high_word(x) & 0x7fffffffu;
    const bool below = high_word(x) >> 31;
    if (high >= 0x4043687au) {
        if (is_nan(x)) return x;
        if (below) return -1.0;
        if (x > 7.09782712893383973096e+02) return x * power_of_two(1023);
    }
    int k = 0;
    double c = 0.0;
    if (high > 0x3fd62e42u) {
        double hi, lo;
        if (high < 0x3ff0a2b2u) {
            k = below ? -1 : 1;
            hi = below ? x + ln2_high : x - ln2_high;
            lo = below ? -ln2_low : ln2_low;
        } else {
            k = (int)(1.44269504088896338700e+00 * x + (below ? -0.5 : 0.5));
            hi = x - (double)k * ln2_high;
            lo = (double)k * ln2_low;
        }
        x = hi - lo;
        c = (hi - x) - lo;
    } else if (high < 0x3c900000u) {
        return x;
    }
    const double half = 0.5 * x, square = x * half;
    const double r = 1.0 + square * (-3.33333333333331316428e-02 +
                                     square * (1.58730158725481460165e-03 +
                                               square * (-7.93650757867487942473e-05 +
                                                         square * (4.00821782732936239552e-06 +
                                                                   square * -2.01099218183624371326e-07))));
    const double t = 3.0 - r * half;
    double e = square * ((r - t) / (6.0 - x * t));
    if (k == 0) return x - (x * e - square);
    e = x * (e - c) - c;
    e = e - square;
    if (k == -1) return 0.5 * (x - e) - 0.5;
    if (k == 1) return x < -0.25 ? -2.0 * (e - (x + 0.5)) : 1.0 + 2.0 * (x - e);
    if (k < 0 || k > 56) {
        double y = x - e + 1.0;
        y = k == 1024 ? y * 2.0 * power_of_two(1023) : y * power_of_two(k);
        return y - 1.0;
    }
    const double less = power_of_two(-k);
    return (k < 20 ? x - e + (1.0 - less) : x - (e + less) + 1.0) * power_of_two(k);
}

// e^x / 2 for x beyond the logarithm of the largest number.
STEP double half_exp(double x) {
    const double scale = power_of_two(1021);
    return math_exp(x - of_bits(0x40962066151add8bull)) * scale * scale;
}

STEP_CALL double math_sinh(double x) {
    const double half = high_word(x) >> 31 ? -0.5 : 0.5, size = fabs(x);
    const u32 high = high_word(size);
    if (high < 0x40862e42u) {
        const double t = math_expm1(size);
        if (high < 0x3ff00000u) {
            if (high < 0x3ff00000u - (26u << 20)) return x;
            return half * (2.0 * t - t * t / (t + 1.0));
        }
        return half * (t + t / (t + 1.0));
    }
    return 2.0 * half * half_exp(size);
}

STEP_CALL double math_cosh(double x) {
    const double size = fabs(x);
    const u32 high = high_word(size);
    if (high < 0x3fe62e42u) {
        if (high < 0x3ff00000u - (26u << 20)) return 1.0;
        const double t = math_expm1(size);
        return 1.0 + t * t / (2.0 * (1.0 + t));
    }
    if (high < 0x40862e42u) {
        const double t = math_exp(size);
        return 0.5 * (t + 1.0 / t);
    }
    return half_exp(size);
}

STEP_CALL double math_tanh(double x) {
    const double size = fabs(x);
    const u32 high = high_word(size);
    double t = size;
    if (high > 0x3fe193eau) {
        if (high > 0x40340000u) {
            t = 1.0 - 0.0 / size;
        } else {
            t = math_expm1(2.0 * size);
            t = 1.0 - 2.0 / (t + 2.0);
        }
    } else if (high > 0x3fd058aeu) {
        t = math_expm1(2.0 * size);
        t = t / (t + 2.0);
    } else if (high >= 0x00100000u) {
        t = math_expm1(-2.0 * size);
        t = -t / (t + 2.0);
    }
    return high_word(x) >> 31 ? -t : t;
}

STEP_CALL double math_atan(double x) {
    const u32 high = high_word(x) & 0x7fffffffu;
    const bool below = high_word(x) >> 31;
    if (high >= 0x44100000u) {
        if (is_nan(x)) return x;
        const double z = 1.57079632679489655800e+00 + of_bits(0x03800000ull);
        return below ? -z : z;
    }
    bool small = false;
    double upper = 0.0, lower = 0.0;
    if (high < 0x3fdc0000u) {
        if (high < 0x3e400000u) return x;
        small = true;
    } else {
        x = fabs(x);
        if (high < 0x3fe60000u) {
            x = (2.0 * x - 1.0) / (2.0 + x);
            upper = 4.63647609000806093515e-01;
            lower = 2.26987774529616870924e-17;
        } else if (high < 0x3ff30000u) {
            x = (x - 1.0) / (x + 1.0);
            upper = 7.85398163397448278999e-01;
            lower = 3.06161699786838301793e-17;
        } else if (high < 0x40038000u) {
            x = (x - 1.5) / (1.0 + 1.5 * x);
            upper = 9.82793723247329054082e-01;
            lower = 1.39033110312309984516e-17;
        } else {
            x = -1.0 / x;
            upper = 1.57079632679489655800e+00;
            lower = 6.12323399573676603587e-17;
        }
    }
    const double z = x * x, w = z * z;
    const double odd =
        z * (3.33333333333329318027e-01 +
             w * (1.42857142725034663711e-01 +
                  w * (9.09088713343650656196e-02 +
                       w * (6.66107313738753120669e-02 + w * (4.97687799461593236017e-02 + w * 1.62858201153657823623e-02)))));
    const double even =
        w * (-1.99999999998764832476e-01 +
             w * (-1.11111104054623557880e-01 +
                  w * (-7.69187620504482999495e-02 + w * (-5.83357013379057348645e-02 + w * -3.65315727442169155270e-02))));
    if (small) return x - x * (odd + even);
    const double value = upper - (x * (odd + even) - lower - x);
    return below ? -value : value;
}

// The rational function of both arcs.
STEP double arc_series(double z) {
    const double p =
        z * (1.66666666666666657415e-01 +
             z * (-3.25565818622400915405e-01 +
                  z * (2.01212532134862925881e-01 +
                       z * (-4.00555345006794114027e-02 + z * (7.91534994289814532176e-04 + z * 3.47933107596021167570e-05)))));
    const double q = 1.0 + z * (-2.40339491173441421878e+00 +
                                z * (2.02094576023350569471e+00 +
                                     z * (-6.88283971605453293030e-01 + z * 7.70381505559019352791e-02)));
    return p / q;
}

constexpr double HALF_PI = 1.57079632679489655800e+00, HALF_PI_LOW = 6.12323399573676603587e-17;

STEP_CALL double math_asin(double x) {
    const u32 high = high_word(x) & 0x7fffffffu;
    if (high >= 0x3ff00000u) {
        if (fabs(x) == 1.0) return x * HALF_PI + of_bits(0x3870000000000000ull);
        return 0.0 / (x - x);
    }
    if (high < 0x3fe00000u) {
        if (high >= 0x00100000u && high < 0x3e500000u) return x;
        return x + x * arc_series(x * x);
    }
    const double z = (1.0 - fabs(x)) * 0.5, s = sqrt(z), r = arc_series(z);
    double value;
    if (high >= 0x3fef3333u) {
        value = HALF_PI - (2.0 * (s + s * r) - HALF_PI_LOW);
    } else {
        const double f = coarse(s), c = (z - f * f) / (s + f);
        value = 0.5 * HALF_PI - (2.0 * s * r - (HALF_PI_LOW - 2.0 * c) - (0.5 * HALF_PI - 2.0 * f));
    }
    return high_word(x) >> 31 ? -value : value;
}

STEP_CALL double math_acos(double x) {
    const u32 high = high_word(x) & 0x7fffffffu;
    const bool below = high_word(x) >> 31;
    const double tiny = of_bits(0x3870000000000000ull);
    if (high >= 0x3ff00000u) {
        if (fabs(x) == 1.0) return below ? 2.0 * HALF_PI + tiny : 0.0;
        return 0.0 / (x - x);
    }
    if (high < 0x3fe00000u) {
        if (high <= 0x3c600000u) return HALF_PI + tiny;
        return HALF_PI - (x - (HALF_PI_LOW - x * arc_series(x * x)));
    }
    if (below) {
        const double z = (1.0 + x) * 0.5, s = sqrt(z);
        return 2.0 * (HALF_PI - (s + (arc_series(z) * s - HALF_PI_LOW)));
    }
    const double z = (1.0 - x) * 0.5, s = sqrt(z), f = coarse(s), c = (z - f * f) / (s + f);
    return 2.0 * (f + (arc_series(z) * s + c));
}
