//! Generates the services from `proto/`; `.cargo/config.toml` sets the path of `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let protos = ["proto/trawl.proto", "proto/externalscaler.proto"];
    protos.iter().for_each(|proto| println!("cargo:rerun-if-changed={proto}"));
    tonic_prost_build::configure().compile_protos(&protos, &["proto"])?;
    Ok(())
}
