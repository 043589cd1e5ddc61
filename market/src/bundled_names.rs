//! Names of the bundled datasets.

/// Five real stocks.
pub const US5: &str = "us5";

/// An invented market with sectors, daily.
pub const DEMO: &str = "demo";

/// Its minutes.
pub const DEMO_1M: &str = "demo-1m";

/// Names of the bundled datasets; other datasets may not have them.
pub(crate) const BUNDLED: [&str; 3] = [US5, DEMO, DEMO_1M];

/// Whether a dataset of this name is bundled.
pub fn is_bundled(name: &str) -> bool {
    BUNDLED.contains(&name)
}
