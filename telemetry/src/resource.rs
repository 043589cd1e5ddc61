//! The identity of a process in every span, metric and log line: service, version, instance, host, GPUs.

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::{EnvResourceDetector, TelemetryResourceDetector};
use opentelemetry_sdk::trace::{IdGenerator as _, RandomIdGenerator};

use crate::environment::variable;
use crate::names::attribute;
use crate::role::Role;

/// Where NVIDIA's driver describes its devices.
const NVIDIA_DEVICES: &str = "/proc/driver/nvidia/gpus";
/// Variables with the devices that a container was given.
const NVIDIA_VISIBLE: [&str; 2] = ["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"];
/// Most devices that are listed.
const GPUS_MAX: usize = 16;

/// `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME` take precedence over what is found here.
pub(crate) fn resource(role: Role) -> Resource {
    let mut found = vec![
        KeyValue::new(attribute::SERVICE_NAME, role.service_name()),
        KeyValue::new(attribute::SERVICE_VERSION, env!("CARGO_PKG_VERSION")),
        KeyValue::new(attribute::SERVICE_INSTANCE_ID, instance()),
    ];
    found.extend(node().map(|node| KeyValue::new(attribute::HOST_NAME, node)));
    let gpus = if role == Role::Worker { gpus() } else { Vec::new() };
    if !gpus.is_empty() {
        found.push(KeyValue::new(attribute::GPU_UUID, gpus.join(",")));
    }
    let resource = Resource::builder_empty()
        .with_attributes(found)
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_detector(Box::new(EnvResourceDetector::new()));
    match variable("OTEL_SERVICE_NAME") {
        Some(name) => resource.with_service_name(name).build(),
        None => resource.build(),
    }
}

/// A random UUID.
fn instance() -> String {
    let mut bytes = RandomIdGenerator::default().new_trace_id().to_bytes();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = hex::encode(bytes);
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// The node of an orchestrator if it is set, else the host's name.
fn node() -> Option<String> {
    let of_file = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned());
    variable("TRAWL_NODE").or_else(of_file).or_else(|| variable("HOSTNAME")).filter(|name| !name.is_empty())
}

/// UUIDs of the devices that this process may use, as far as they are known.
pub fn gpus() -> Vec<String> {
    for name in NVIDIA_VISIBLE {
        let Some(value) = variable(name) else { continue };
        let named: Vec<String> = value.split(',').map(str::trim).filter(|d| is_uuid(d)).map(str::to_owned).collect();
        if !named.is_empty() {
            return named.into_iter().take(GPUS_MAX).collect();
        }
    }
    let Ok(devices) = std::fs::read_dir(NVIDIA_DEVICES) else { return Vec::new() };
    let descriptions =
        devices.flatten().filter_map(|device| std::fs::read_to_string(device.path().join("information")).ok());
    let mut found: Vec<String> = descriptions.filter_map(|text| uuid_in(&text)).take(GPUS_MAX).collect();
    found.sort();
    found
}

fn is_uuid(text: &str) -> bool {
    text.starts_with("GPU-") || text.starts_with("MIG-")
}

/// Extracts the UUID from lines such as `GPU UUID:   GPU-…`.
fn uuid_in(information: &str) -> Option<String> {
    let line = information.lines().find(|line| line.starts_with("GPU UUID"))?;
    line.split_whitespace().last().filter(|word| is_uuid(word)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use opentelemetry::Key;

    use super::*;

    #[test]
    fn a_process_reports_its_identity() {
        let resource = resource(Role::Coordinator);
        let of = |key| resource.get(&Key::from_static_str(key)).map(|value| value.to_string());
        assert_eq!(of(attribute::SERVICE_NAME).as_deref(), Some("trawl-coordinator"));
        assert_eq!(of(attribute::SERVICE_VERSION).as_deref(), Some(env!("CARGO_PKG_VERSION")));
        let instance = of(attribute::SERVICE_INSTANCE_ID).unwrap();
        assert_eq!((instance.len(), &instance[14..15]), (36, "4"), "{instance}");
        assert_ne!(instance, super::instance());
    }

    #[test]
    fn the_drivers_description_of_a_device_is_parsed() {
        let information =
            "Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-12345678-aaaa-bbbb-cccc-123456789abc\nBus Type: PCIe\n";
        assert_eq!(uuid_in(information).as_deref(), Some("GPU-12345678-aaaa-bbbb-cccc-123456789abc"));
        assert_eq!(uuid_in("GPU UUID: ????"), None);
    }
}
