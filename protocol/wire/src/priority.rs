//! Priorities in requests.

use trawl_terms::Priority;

use crate::pb;

impl From<pb::Priority> for Priority {
    fn from(priority: pb::Priority) -> Self {
        match priority {
            pb::Priority::Low => Self::Low,
            pb::Priority::Normal => Self::Normal,
            pb::Priority::High => Self::High,
        }
    }
}

impl From<Priority> for pb::Priority {
    fn from(priority: Priority) -> Self {
        match priority {
            Priority::Low => Self::Low,
            Priority::Normal => Self::Normal,
            Priority::High => Self::High,
        }
    }
}
