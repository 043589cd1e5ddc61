//! The engine against TA-Lib's golden vectors, against a plain scalar oracle, and against itself.

mod calls;
mod chunks;
mod classification;
mod compile;
mod device;
mod double;
mod double_tests;
mod edges;
mod emulator;
mod emulator_tests;
mod families;
mod fused;
mod gaps;
mod golden;
mod number;
mod numerics;
mod oracle;
mod parts;
mod patterns;
mod precision;
mod properties;
mod resident;
mod resume;
mod rich;
mod scaling;
mod trend;
