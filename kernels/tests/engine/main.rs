//! The engine against TA-Lib's golden vectors, against a plain scalar oracle, and against itself.

mod golden;
mod numerics;
mod oracle;
mod precision;
mod properties;
mod rich;
