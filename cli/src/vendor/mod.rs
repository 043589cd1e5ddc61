//! Data of others: files in directories and buckets (`place`, `inbox`, `arriving`), as a lake (`lake`, `lake_out`) or as Polygon's files of a day each (`day_files`,
//! `record`), and what Polygon (now Massive) answers over HTTP (`client`, `bars`, `answers`, `reference`). Here are names, places and requests; what
//! a row means is decided by `trawl_market`, as for any other file.

pub mod answers;
pub mod arriving;
pub mod bars;
pub mod client;
pub mod companies;
pub mod day_files;
pub mod inbox;
pub mod lake;
pub mod lake_out;
pub mod listings;
pub mod names;
pub mod place;
pub mod questions;
pub mod record;
pub mod reference;
pub mod tickers;
