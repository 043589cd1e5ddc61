//! Generates the services from `proto/`; `.cargo/config.toml` sets the path of `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let protos = ["proto/trawl.proto", "proto/externalscaler.proto"];
    protos.iter().for_each(|proto| println!("cargo:rerun-if-changed={proto}"));
    // Payloads are shared between logs, stores and streams instead of copied.
    let generator = tonic_prost_build::configure().bytes(".trawl.v1.Envelope.payload");
    generator.compile_protos(&protos, &["proto"])?;
    Ok(())
}
