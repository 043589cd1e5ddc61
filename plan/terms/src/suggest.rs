//! "Did you mean": the known name that is nearest to one that is unknown.

/// Letters from which on the beginning of one known name alone is taken for that name.
const BEGINNING_MIN: usize = 2;

/// The nearest of `known` to `name` when it is near enough to be what was meant: one slip in short words, none in those
/// of one or two letters, where everything is near; else the only one that begins with `name`. Case is ignored; of
/// equally near names the first by byte order.
pub fn suggest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_lowercase();
    let known: Vec<&str> = known.into_iter().collect();
    let mut begin = known.iter().copied().filter(|k| k.to_lowercase().starts_with(&lower));
    let only = begin.next().filter(|_| begin.next().is_none() && lower.len() >= BEGINNING_MIN);
    known
        .iter()
        .copied()
        .map(|k| (strsim::damerau_levenshtein(&lower, &k.to_lowercase()), k))
        .filter(|(distance, k)| match k.len().min(lower.len()) {
            0..=2 => *distance == 0,
            length => *distance <= 1 + (length - 3) / 4,
        })
        .min_by(|a, b| a.0.cmp(&b.0).then(a.1.cmp(b.1)))
        .map(|(_, k)| k)
        .or(only)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_and_the_beginning_of_one_name_alone_are_recognised() {
        let known = ["us5", "demo", "demo-1m", "weekly"];
        assert_eq!(suggest("dmeo", known), Some("demo"));
        assert_eq!(suggest("US", known), Some("us5"));
        assert_eq!(suggest("week", known), Some("weekly"));
        assert_eq!(suggest("de", known), None, "two begin so");
        assert_eq!(suggest("u", known), None, "too short");
        assert_eq!(suggest("", known), None);
        assert_eq!(suggest("nasdaq", known), None);
    }
}
