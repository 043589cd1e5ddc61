//! The engine against TA-Lib's golden vectors, against a plain scalar oracle, and against itself.

mod golden;
mod oracle;
mod patterns;
mod properties;
mod rich;
