//! The engine against TA-Lib's golden vectors, against a plain scalar oracle, and against itself.

mod double;
mod double_tests;
mod golden;
mod number;
mod oracle;
mod properties;
mod rich;
