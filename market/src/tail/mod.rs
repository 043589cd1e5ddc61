//! Appended bars: files of the bars that appends added to all groups, and their indices.
//!
//! A snapshot with appended bars is a base, which was written whole, and tails. A tail holds what one append added to all groups,
//! or what several did and was merged: an Arrow file like that of a group (`files/<sha256>.arrow`), rows by group, symbol and
//! time, so that the rows of a group are in a row in each column, and an index (`files/<sha256>.tail`, named by its own content)
//! which says where they are, with their times, counts and checksums. Each symbol's bars of a tail are later than those before.
//!
//! Reading a group reads its range of each tail, and lays its bars after those of the base. Tails are merged by level
//! ([`levels`]), so that there are few. Writing the base anew is `compact`'s.

pub(crate) mod index;
pub(crate) mod levels;
pub(crate) mod open;
pub(crate) mod reader;
pub(crate) mod writer;

pub(crate) use self::open::{OpenTail, Tails};
pub(crate) use self::writer::TailWriter;
