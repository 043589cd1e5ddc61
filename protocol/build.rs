//! Generates the services from `proto/trawl.proto`; `.cargo/config.toml` says where `protoc` is.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto/trawl.proto");
    tonic_prost_build::configure().compile_protos(&["proto/trawl.proto"], &["proto"])?;
    Ok(())
}
