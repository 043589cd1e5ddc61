//! Time zones by their IANA names: local times to instants and back.
//!
//! The rules are part of the program (the crate chrono-tz), so that the same text means the same instant on every
//! machine. A local time that occurs twice in autumn is the earlier one unless its abbreviation says otherwise; one
//! that is skipped in spring is read with the offset before the change.

use std::fmt;

use chrono::{DateTime, MappedLocalTime, Offset as _, TimeZone as _};
use chrono_tz::{OffsetName as _, TZ_VARIANTS, Tz};

use trawl_terms::suggest;

use crate::error::MarketError;
use crate::time::{DAY, MINUTE, SECOND, TimeMicros};

/// A time zone; cheap to copy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Zone {
    tz: Tz,
}

/// Longer than any change of the clocks.
const GAP_MAX: i64 = 26 * 60 * MINUTE;

impl Zone {
    /// Coordinated universal time.
    pub const UTC: Self = Self { tz: Tz::UTC };
    /// New York.
    pub const NEW_YORK: Self = Self { tz: Tz::America__New_York };

    /// A zone by its IANA name, such as `America/New_York`, or `UTC`; case is ignored.
    ///
    /// # Errors
    /// [`MarketError::BadName`] with the nearest name.
    pub fn named(name: &str) -> Result<Self, MarketError> {
        let found = TZ_VARIANTS.iter().find(|tz| tz.name().eq_ignore_ascii_case(name.trim()));
        found.map(|&tz| Self { tz }).ok_or_else(|| {
            let near = suggest(name, TZ_VARIANTS.iter().map(|tz| tz.name()));
            let near = near.map_or_else(String::new, |near| format!("; did you mean '{near}'?"));
            MarketError::BadName {
                text: crate::name::shortened(name),
                what: "time zone",
                expected: format!("an IANA name is expected, such as America/New_York or UTC{near}"),
            }
        })
    }

    /// The IANA name.
    pub fn name(self) -> &'static str {
        self.tz.name()
    }

    /// The instant at which the local time in the zone is `wall` (microseconds since 1970-01-01 00:00 local time).
    pub fn to_utc(self, wall: TimeMicros) -> TimeMicros {
        match self.instants(wall) {
            MappedLocalTime::Single(at) | MappedLocalTime::Ambiguous(at, _) => at,
            MappedLocalTime::None => {
                let before = wall.saturating_sub(GAP_MAX);
                before.checked_sub(self.to_utc_or_same(before)).map_or(wall, |offset| wall.saturating_sub(offset))
            }
        }
    }

    /// Like [`Zone::to_utc`], with the zone abbreviation that was written after the time, such as `EDT`; `None` when
    /// the zone does not use it at that time.
    pub fn to_utc_named(self, wall: TimeMicros, abbreviation: &str) -> Option<TimeMicros> {
        let fits = |at: &TimeMicros| self.abbreviation(*at).eq_ignore_ascii_case(abbreviation);
        match self.instants(wall) {
            MappedLocalTime::Single(at) => Some(at).filter(fits),
            MappedLocalTime::Ambiguous(early, late) => [early, late].into_iter().find(fits),
            MappedLocalTime::None => None,
        }
    }

    /// The local time in the zone at an instant, in microseconds since 1970-01-01 00:00 local time.
    pub fn wall(self, utc: TimeMicros) -> TimeMicros {
        let Some(at) = DateTime::from_timestamp_micros(utc) else { return utc };
        let offset = self.tz.offset_from_utc_datetime(&at.naive_utc()).fix().local_minus_utc();
        utc.saturating_add(i64::from(offset) * SECOND)
    }

    /// The abbreviation in force at an instant, such as `EDT`; an offset such as `-03` where the zone has none.
    pub fn abbreviation(self, utc: TimeMicros) -> String {
        let Some(at) = DateTime::from_timestamp_micros(utc) else { return "UTC".to_owned() };
        let offset = self.tz.offset_from_utc_datetime(&at.naive_utc());
        offset.abbreviation().map_or_else(|| offset.fix().to_string(), str::to_owned)
    }

    /// A time as people in the zone write it: `2024-06-28 10:31 EDT`; with seconds only if they are not zero.
    pub fn format(self, utc: TimeMicros) -> String {
        let wall = self.wall(utc);
        let Some(shown) = DateTime::from_timestamp_micros(wall) else { return crate::time::format_time(utc) };
        let pattern = match (wall.rem_euclid(MINUTE), wall.rem_euclid(SECOND)) {
            (0, _) => "%Y-%m-%d %H:%M",
            (_, 0) => "%Y-%m-%d %H:%M:%S",
            _ => "%Y-%m-%d %H:%M:%S%.6f",
        };
        format!("{} {}", shown.format(pattern), self.abbreviation(utc))
    }

    /// The instant at which a date ends, whatever change of the clocks there is in that night. `date` is 00:00 UTC of
    /// it.
    pub fn end_of_day(self, date: TimeMicros) -> TimeMicros {
        self.to_utc(date.saturating_add(DAY))
    }

    fn instants(self, wall: TimeMicros) -> MappedLocalTime<TimeMicros> {
        let Some(at) = DateTime::from_timestamp_micros(wall) else { return MappedLocalTime::Single(wall) };
        self.tz.from_local_datetime(&at.naive_utc()).map(|at| at.timestamp_micros())
    }

    fn to_utc_or_same(self, wall: TimeMicros) -> TimeMicros {
        self.instants(wall).earliest().unwrap_or(wall)
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Zone({})", self.name())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::time::{format_time, parse_time};

    fn at(text: &str) -> TimeMicros {
        parse_time(text).unwrap()
    }

    #[test]
    fn local_times_become_instants_on_both_sides_of_a_clock_change() {
        let zone = Zone::NEW_YORK;
        for (wall, utc, shown) in [
            ("2024-01-05 09:30", "2024-01-05T14:30:00Z", "2024-01-05 09:30 EST"),
            ("2024-06-28 10:31", "2024-06-28T14:31:00Z", "2024-06-28 10:31 EDT"),
            // Occurs twice: the earlier one.
            ("2024-11-03 01:30", "2024-11-03T05:30:00Z", "2024-11-03 01:30 EDT"),
            // Skipped: with the offset before the change.
            ("2024-03-10 02:30", "2024-03-10T07:30:00Z", "2024-03-10 03:30 EDT"),
        ] {
            assert_eq!(format_time(zone.to_utc(at(wall))), utc, "{wall}");
            assert_eq!(zone.format(at(utc)), shown);
        }
        let later = zone.to_utc_named(at("2024-11-03 01:30"), "EST").unwrap();
        assert_eq!(format_time(later), "2024-11-03T06:30:00Z");
        assert_eq!(zone.to_utc_named(at("2024-06-28 10:31"), "EST"), None);
        assert_eq!(format_time(zone.end_of_day(at("2024-11-03"))), "2024-11-04T05:00:00Z");
        assert_eq!(Zone::UTC.format(at("2024-06-28 10:31:05")), "2024-06-28 10:31:05 UTC");
    }

    #[test]
    fn zones_have_their_iana_names_and_others_are_refused() {
        assert_eq!(Zone::named("america/new_york").unwrap(), Zone::NEW_YORK);
        assert_eq!(Zone::named("UTC").unwrap(), Zone::UTC);
        let error = Zone::named("America/NewYork").unwrap_err().to_string();
        assert!(error.contains("America/New_York"), "{error}");
        assert!(Zone::named("EDT5").is_err());
    }

    proptest! {
        #[test]
        fn an_instant_shown_with_its_abbreviation_is_found_again(
            seconds in -2_000_000_000i64..4_000_000_000, zone in 0..TZ_VARIANTS.len()
        ) {
            let zone = Zone { tz: TZ_VARIANTS[zone] };
            let utc = seconds * SECOND;
            prop_assert_eq!(zone.to_utc_named(zone.wall(utc), &zone.abbreviation(utc)), Some(utc));
        }

        #[test]
        fn an_instant_never_causes_a_panic(time in any::<i64>()) {
            let _ = (Zone::NEW_YORK.to_utc(time), Zone::NEW_YORK.wall(time), Zone::NEW_YORK.format(time));
            let _ = (Zone::UTC.end_of_day(time), Zone::NEW_YORK.to_utc_named(time, "EST"));
        }
    }
}
