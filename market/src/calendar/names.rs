//! Finds a calendar by name.

use super::{CALENDARS, Calendar};
use trawl_terms::suggest;

use crate::error::MarketError;

impl Calendar {
    /// A calendar by its name, such as `XNYS`, `24/7` or `weekdays`; case is ignored.
    ///
    /// # Errors
    /// [`MarketError::BadName`] that lists them, with the one that was probably meant: exchanges have other common
    /// names.
    pub fn named(name: &str) -> Result<Self, MarketError> {
        let name = name.trim();
        if let Some(found) = Self::all().find(|calendar| calendar.name().eq_ignore_ascii_case(name)) {
            return Ok(found);
        }
        let near = Self::meant(name);
        let near = near.map_or_else(String::new, |c| format!("; did you mean '{}' ({})?", c.name(), c.title()));
        Err(MarketError::BadName {
            text: crate::name::shortened(name),
            what: "calendar",
            expected: format!("expected one of {}{near}", CALENDARS.join(", ")),
        })
    }

    /// The calendar with a similar other name: an equal name first, then the nearest.
    fn meant(name: &str) -> Option<Self> {
        let names = |calendar: Self| {
            let rules = &calendar.table().rules;
            rules.also.iter().map(String::as_str).chain([calendar.name(), rules.title.as_str()])
        };
        let plain = name.replace([' ', '_', '-', '/'], "");
        let same = |calendar: &Self| names(*calendar).any(|known| known.eq_ignore_ascii_case(&plain));
        Self::all().find(same).or_else(|| {
            let near = suggest(name, Self::all().flat_map(names))?;
            Self::all().find(|calendar| names(*calendar).any(|known| known == near))
        })
    }
}
