//! The engine against TA-Lib's golden vectors, against a plain scalar oracle, and against itself.

mod calls;
mod gaps;
mod golden;
mod numerics;
mod oracle;
mod patterns;
mod precision;
mod properties;
mod rich;
