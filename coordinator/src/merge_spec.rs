//! What merging needs to know of a scan.

use trawl_plan::{ColumnKind, Setting};
use trawl_wire::{Identity, pb};

/// What merging needs to know of a scan; travels to a client in the header of its stream.
#[derive(Debug, Clone, PartialEq)]
pub struct MergeSpec {
    /// Identity, part of the answer.
    pub identity: Identity,
    /// Label of the as-of bar; `None` if not known.
    pub time: Option<i64>,
    /// Label of the newest whole bar of the scan's timeframe; `None` where no such bars are built.
    pub bar: Option<i64>,
    /// Headings of the values.
    pub select: Vec<String>,
    /// For each heading what its values are; empty, all are numbers.
    pub kinds: Vec<ColumnKind>,
    /// Values of the sweep's variables at each point; one point without settings when there is no sweep.
    pub points: Vec<Vec<(String, Setting)>>,
    /// Whether each symbol keeps only its best points.
    pub best: bool,
    /// Per rank key: whether the largest value comes first.
    pub descending: Vec<bool>,
    /// Maximum number of matches that get a rank.
    pub limit: Option<u32>,
}

impl MergeSpec {
    /// From the head of a scan's events. `partial` as in the answer's identity.
    ///
    /// # Errors
    /// Its identity or its points cannot be read.
    pub(crate) fn of_header(header: &pb::Accepted, partial: bool) -> Result<Self, serde_json::Error> {
        let mut identity: Identity = serde_json::from_str(&header.identity_json)?;
        identity.partial = partial;
        Ok(Self {
            identity,
            time: header.time_us,
            bar: header.bar_us,
            select: header.select.clone(),
            kinds: kinds_of(header)?,
            points: serde_json::from_str(&header.points_json)?,
            best: header.best,
            descending: header.rank_descending.clone(),
            limit: header.limit,
        })
    }
}

/// What the select columns are: as coordinators say it, or as those of earlier releases do.
fn kinds_of(header: &pb::Accepted) -> Result<Vec<ColumnKind>, serde_json::Error> {
    if !header.kinds_json.is_empty() {
        return serde_json::from_str(&header.kinds_json);
    }
    let kind = |condition: &bool| if *condition { ColumnKind::Condition } else { ColumnKind::Number };
    Ok(header.conditions.iter().map(kind).collect())
}
