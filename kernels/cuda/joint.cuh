// Least-squares lines, and two series over one window. All steps are wide.
#pragma once
#include "base.cuh"
#include "window.cuh"

// Slope of the line through the window: sums of d and of k*d, d a value less the block's first one, k its bar less the
// block's first bar.
struct WindowSlope {
    Block block;
    double anchor, plain, weighted;

    __device__ __forceinline__ void start(int t, int p) {
        block.start(t, p);
        anchor = plain = weighted = na();
    }

    __device__ __forceinline__ double next(double x, int t, int p, const WideRing& plains, const WideRing& weighteds) {
        if (block.begins()) {
            anchor = x;
            plain = weighted = 0.0;
            double tail_plain = 0.0, tail_weighted = 0.0;
            for (int j = Block::last(p, plains); j > 0; --j) {
                const double d = plains[j] - anchor;
                tail_plain = tail_plain + d;
                tail_weighted = tail_weighted + ((double)j - (double)p) * d;
                plains[j] = tail_plain;
                weighteds[j] = tail_weighted;
            }
        }
        const double d = x - anchor;
        plain = plain + d;
        weighted = weighted + (double)block.at * d;
        const bool left = block.at + 1 < p;
        const double all = plain + (left ? plains[block.at + 1] : 0.0);
        const double all_weighted = weighted + (left ? weighteds[block.at + 1] : 0.0);
        const double n = (double)p;
        // Sum of the squared distances of p bars from their middle.
        const double spread = n * (n * n - 1.0) / 12.0;
        const double middle = (double)block.at - (n - 1.0) / 2.0;
        plains[block.at] = x;
        block.next(p);
        return t + 1 < p ? na() : defined((all_weighted - middle * all) / spread);
    }
};

// Below it a product of two variances has lost digits.
constexpr double PRODUCT_LEAST = 1e-290;

// Of a part of a window the sums of x, y, xx, yy and xy.
struct JointSums {
    double x, y, xx, yy, xy;

    static __device__ __forceinline__ JointSums none() { return JointSums{0.0, 0.0, 0.0, 0.0, 0.0}; }

    // With one more bar, whose values are `dx` and `dy` from the anchors.
    __device__ __forceinline__ void grow(double dx, double dy) {
        x = x + dx;
        y = y + dy;
        xx = xx + dx * dx;
        yy = yy + dy * dy;
        xy = xy + dx * dy;
    }
};

// Pearson's correlation, or with BETA the slope of y over x; 0 where a series does not vary.
template <bool BETA>
struct WindowJoint {
    Block block;
    double anchor_x, anchor_y;
    JointSums head;

    __device__ __forceinline__ void start(int t, int p) {
        block.start(t, p);
        anchor_x = anchor_y = na();
        head = JointSums::none();
    }

    __device__ __forceinline__ double next(
        double x, double y, int p, const WideRing& xs, const WideRing& ys, const WideRing& xxs, const WideRing& yys, const WideRing& xys) {
        if (block.begins()) {
            anchor_x = x;
            anchor_y = y;
            JointSums tail = JointSums::none();
            const int last = Block::last(p, xs);
            for (int j = last; j > 0; --j) {
                tail.grow(xs[j] - anchor_x, ys[j] - anchor_y);
                xs[j] = tail.x;
                ys[j] = tail.y;
                xxs[j] = tail.xx;
                yys[j] = tail.yy;
                xys[j] = tail.xy;
            }
            head = JointSums::none();
        }
        const int at = block.at, n = at + 1;
        head.grow(x - anchor_x, y - anchor_y);
        JointSums tail = JointSums::none();
        if (n < p) tail = JointSums{xs[n], ys[n], xxs[n], yys[n], xys[n]};
        xs[at] = x;
        ys[at] = y;
        block.next(p);
        // Variances and how the two vary together, each times the squared number of bars.
        const double bars = (double)p, sx = tail.x + head.x, sy = tail.y + head.y;
        const double xx = (tail.xx + head.xx) * bars - sx * sx;
        const double yy = (tail.yy + head.yy) * bars - sy * sy;
        const double xy = (tail.xy + head.xy) * bars - sx * sy;
        return BETA ? beta(xx, xy) : correlation(xx, yy, xy);
    }

    static __device__ __forceinline__ double beta(double xx, double xy) {
        const bool known = is_finite(xx) && is_finite(xy);
        return xx == 0.0 && known ? 0.0 : only(xy / xx, known);
    }

    static __device__ __forceinline__ double correlation(double xx, double yy, double xy) {
        const bool known = is_finite(xx) && is_finite(yy) && is_finite(xy);
        if ((xx == 0.0 || yy == 0.0) && known) return 0.0;
        const double product = xx * yy;
        const bool usual = PRODUCT_LEAST < product && is_finite(product);
        // The root of a square is exact, so that equal variances give exactly 1.
        const double ratio = usual ? xy / sqrt(product) : xy / xx * sqrt(xx / yy);
        // Rounding may have carried it beyond 1. Both take their second argument where that is NaN.
        return only(smaller(1.0, larger(-1.0, ratio)), known);
    }
};
