//! How users name devices: by number, or by UUID as in `CUDA_VISIBLE_DEVICES`; which devices are slices of a GPU.

use std::fmt::{Display, Formatter};
use std::str::FromStr;

/// The beginnings of UUIDs: of a GPU, and of a slice of one (MIG).
pub(super) const KINDS: [&str; 2] = ["GPU-", "MIG-"];
/// Where the profile of a slice begins in the name that the driver gives it: `NVIDIA H100 80GB HBM3 MIG 1g.10gb`.
const SLICE_MARK: &str = " MIG ";

/// The name of a device, as users give it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DeviceName {
    /// The driver's number of the device, from 0.
    Ordinal(usize),
    /// The UUID of a GPU or of a slice, or the beginning of it: `GPU-8932f937` or `MIG-`...
    Uuid(String),
}

impl Display for DeviceName {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ordinal(ordinal) => write!(f, "{ordinal}"),
            Self::Uuid(uuid) => f.write_str(uuid),
        }
    }
}

impl FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(ordinal) = text.parse() {
            return Ok(Self::Ordinal(ordinal));
        }
        if text.starts_with("MIG-GPU-") {
            return Err(
                "MIG-GPU-UUID/GI/CI is a form of drivers that are too old for Trawl: give the slice's own UUID, \
                        MIG-..., which 'nvidia-smi -L' shows"
                    .to_owned(),
            );
        }
        let of_kind = KINDS.iter().find_map(|kind| Some((kind, text.strip_prefix(kind)?)));
        match of_kind {
            Some((kind, rest)) if !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-') => {
                Ok(Self::Uuid(format!("{kind}{}", rest.to_ascii_lowercase())))
            }
            _ => Err(
                "a number of 'trawl devices' is expected, or a UUID such as GPU-8932f937 or that of a slice, MIG-..., \
                      which 'nvidia-smi -L' shows"
                    .to_owned(),
            ),
        }
    }
}

/// The profile of a slice, such as `1g.10gb`, by the device's name and its UUIDs (`of_gpu`: that of the GPU that it is a part of);
/// `None` for a whole GPU.
pub(super) fn slice_of(name: &str, uuid: &[u8; 16], of_gpu: &[u8; 16]) -> Option<String> {
    let profile = name.split_once(SLICE_MARK).and_then(|(_, rest)| rest.split_whitespace().next());
    match profile {
        Some(profile) => Some(profile.to_owned()),
        // A slice whose name does not say so.
        None => (uuid != of_gpu).then(|| "MIG".to_owned()),
    }
}

/// A UUID as the driver's tools write it.
pub(super) fn uuid_text(is_slice: bool, uuid: &[u8; 16]) -> String {
    let mut text = KINDS[usize::from(is_slice)].to_owned();
    for (at, byte) in uuid.iter().enumerate() {
        if [4, 6, 8, 10].contains(&at) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_name_of_a_device_says_what_one_is() {
        for (wrong, why) in [
            ("MIG-GPU-8932f937-d72c/1/0", "the slice's own UUID"),
            ("0:1", "a number of 'trawl devices'"),
            ("GPU-", "a number"),
            ("GPU-xyz", "a number"),
            ("-1", "a number"),
            ("", "a number"),
        ] {
            let error = wrong.parse::<DeviceName>().expect_err("no name");
            assert!(error.contains(why), "{wrong}: {error}");
        }
        for name in ["0", "17", "GPU-8932f937", "MIG-8932f937-d72c"] {
            assert_eq!(name.parse::<DeviceName>().expect("a name").to_string(), name);
        }
    }

    #[test]
    fn a_slice_is_recognised_by_its_name_or_by_a_uuid_of_its_own() {
        let (own, gpu) = ([1; 16], [2; 16]);
        assert_eq!(slice_of("NVIDIA H100 80GB HBM3 MIG 1g.10gb", &own, &gpu).as_deref(), Some("1g.10gb"));
        assert_eq!(slice_of("NVIDIA H100 80GB HBM3", &gpu, &gpu), None);
        assert_eq!(slice_of("NVIDIA H100", &own, &gpu).as_deref(), Some("MIG"));
        assert_eq!(uuid_text(true, &own), "MIG-01010101-0101-0101-0101-010101010101");
        assert!(uuid_text(false, &gpu).starts_with("GPU-0202"));
    }
}
