//! `trawl certs dev`: CAs and certificates for development and trials. Not for production: the CAs' keys are kept beside
//! them.

use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData as _, SanType, date_time_ymd,
};
use sha2::{Digest as _, Sha256};
use trawl_security::{Credentials, Identity, Role, TlsFiles};
use trawl_wire::record::checked_name;

use super::security::mistake;
use crate::failure::UserMistake;

/// File name of etcd's CA, without extension.
const ETCD_CA: &str = "etcd-ca";
/// Days that the CA is valid.
const CA_DAYS: u64 = 3650;
/// Certificates are valid from this much earlier, because clocks differ.
const CLOCK_SLACK: Duration = Duration::from_secs(3600);

/// Make certificates
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Dev(DevArgs),
}

const AFTER_HELP: &str = "\
Writes ca.pem and ca.key, and for each of coordinator, worker, operator and client a NAME.pem and a NAME.key. etcd has a CA \
of its own, so that users' certificates open no connection to it: etcd-ca.pem and etcd-ca.key, with etcd.pem for etcd \
itself, etcd-coordinator.pem and etcd-worker.pem for those that it admits, each with its key. Where a CA exists already, \
new certificates of it are made: that is a rotation, which running processes notice by themselves. They are for \
development: whoever can read ca.key can impersonate anyone.

Example:
  trawl certs dev --dir certs
  etcd --client-cert-auth --trusted-ca-file certs/etcd-ca.pem --cert-file certs/etcd.pem --key-file certs/etcd.key \\
      --listen-client-urls https://127.0.0.1:2379 --advertise-client-urls https://127.0.0.1:2379
  trawl coordinator --tls-ca certs/ca.pem --tls-cert certs/coordinator.pem --tls-key certs/coordinator.key \\
      --etcd https://127.0.0.1:2379 --etcd-ca certs/etcd-ca.pem \\
      --etcd-cert certs/etcd-coordinator.pem --etcd-key certs/etcd-coordinator.key
  trawl worker --tls-ca certs/ca.pem --tls-cert certs/worker.pem --tls-key certs/worker.key \\
      --etcd https://127.0.0.1:2379 --etcd-ca certs/etcd-ca.pem \\
      --etcd-cert certs/etcd-worker.pem --etcd-key certs/etcd-worker.key
  trawl scan --coordinator https://127.0.0.1:7400 --tls-ca certs/ca.pem --tls-cert certs/client.pem \\
      --tls-key certs/client.key --dataset us5 --where 'close > sma(close, 200)'";

/// Make development CAs, and certificates of them for every role
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
struct DevArgs {
    /// Directory to write to; created when it does not exist
    #[arg(long, value_name = "DIR", default_value = "certs")]
    dir: PathBuf,

    /// Name of the client, as limits and the log use it
    #[arg(long, value_name = "NAME", default_value = "dev", value_parser = checked_name)]
    client: String,

    /// Further host names and IP addresses of etcd (localhost, 127.0.0.1 and ::1 are always included)
    #[arg(long, value_name = "HOST")]
    host: Vec<String>,

    /// Days that the certificates are valid
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=825))]
    days: u64,
}

/// Writes the files and prints how they are used.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Command::Dev(args) = args.command;
    let cannot = |what: &str| format!("cannot {what} '{}'", args.dir.display());
    std::fs::create_dir_all(&args.dir).with_context(|| cannot("make the directory"))?;
    let (issuer, made) = authority(&args.dir, "ca", "Trawl development CA")?;
    let (etcd_issuer, _) = authority(&args.dir, ETCD_CA, "Trawl development CA of etcd")?;
    let hosts: Vec<String> =
        ["localhost", "127.0.0.1", "::1"].into_iter().map(str::to_owned).chain(args.host.iter().cloned()).collect();
    let roles = [
        (Role::Coordinator, "coordinator"),
        (Role::Worker, "worker"),
        (Role::Operator, "operator"),
        (Role::Client, args.client.as_str()),
    ];
    let serves = |role: Role| matches!(role, Role::Coordinator | Role::Worker);
    for (role, name) in roles {
        let identity = Identity { role, name: name.to_owned() }.to_string();
        let uri = identity.as_str().try_into().context("the identity cannot be part of a certificate")?;
        issue(&args, &issuer, role.name(), name, vec![SanType::URI(uri)], serves(role))?;
    }
    let names = CertificateParams::new(hosts)
        .map_err(|error| UserMistake::plain(format!("--host: {error}: a host name or an IP address is expected")))?;
    issue(&args, &etcd_issuer, "etcd", "etcd", names.subject_alt_names, true)?;
    let admitted = [Role::Coordinator, Role::Worker];
    for role in admitted {
        // etcd takes the common name for the user's name, where it has users.
        issue(&args, &etcd_issuer, &format!("etcd-{role}"), &format!("trawl-{role}"), Vec::new(), false)?;
    }
    // What was just written is what will be read: a CA whose key belongs to another CA is noticed here.
    let file = |name: &str| args.dir.join(name);
    for role in Role::ALL {
        let own = Some((file(&format!("{role}.pem")), file(&format!("{role}.key"))));
        let expected = serves(role).then_some(role);
        Credentials::load(TlsFiles { ca: file("ca.pem"), own }, expected).map_err(|error| mistake(&error))?;
    }
    for role in admitted {
        let own = Some((file(&format!("etcd-{role}.pem")), file(&format!("etcd-{role}.key"))));
        let ca = file(&format!("{ETCD_CA}.pem"));
        Credentials::load(TlsFiles { ca, own }, None).map_err(|error| mistake(&error))?;
    }
    let ca = if made { "a new CA" } else { "the existing CA" };
    writeln!(
        io::stdout(),
        "wrote {} ({ca}): ca, coordinator, worker, operator, client; etcd-ca, etcd, etcd-coordinator, etcd-worker; for \
         development only",
        args.dir.display()
    )?;
    Ok(ExitCode::SUCCESS)
}

/// The CA `file` in `dir`, and whether it was created.
fn authority(dir: &Path, file: &str, name: &str) -> anyhow::Result<(Issuer<'static, KeyPair>, bool)> {
    let (certificate, key_file) = (dir.join(format!("{file}.pem")), dir.join(format!("{file}.key")));
    match (certificate.exists(), key_file.exists()) {
        (true, true) => {
            let pem =
                std::fs::read_to_string(&key_file).with_context(|| format!("cannot read '{}'", key_file.display()))?;
            let key = KeyPair::from_pem(&pem).map_err(|_| {
                UserMistake::with_help(
                    format!("'{}' contains no usable key", key_file.display()),
                    format!("give another --dir, or remove {file}.pem and {file}.key to make a new CA"),
                )
            })?;
            Ok((Issuer::new(authority_params(&key, name), key), false))
        }
        (false, false) => {
            let key = KeyPair::generate().context("cannot make a key")?;
            let params = authority_params(&key, name);
            let own = params.self_signed(&key).context("cannot make the CA's certificate")?;
            write(&key_file, key.serialize_pem().as_bytes(), true)?;
            write(&certificate, own.pem().as_bytes(), false)?;
            Ok((Issuer::new(params, key), true))
        }
        (one, _) => {
            let (there, missing) = if one { ("pem", "key") } else { ("key", "pem") };
            let message = format!("'{}' holds {file}.{there} without {file}.{missing}", dir.display());
            Err(UserMistake::with_help(message, "give another --dir, or both files of one CA").into())
        }
    }
}

/// The name is derived from the key, so that a CA is recognised by its key alone; another key gives another name, so
/// that the certificate of another CA is reported as such and not as one with a bad signature.
fn authority_params(key: &KeyPair, name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    let digest = Sha256::digest(key.der_bytes());
    let short = hex::encode(&digest[..4]);
    params.distinguished_name = named(&format!("{name} {short}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    validity(&mut params, CA_DAYS);
    params
}

fn named(name: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    subject
}

fn validity(params: &mut CertificateParams, days: u64) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(CLOCK_SLACK);
    params.not_after = epoch + now + Duration::from_secs(days * 86_400);
}

fn issue(
    args: &DevArgs,
    issuer: &Issuer<'static, KeyPair>,
    file: &str,
    name: &str,
    names: Vec<SanType>,
    serves: bool,
) -> anyhow::Result<()> {
    let mut params = CertificateParams::default();
    params.distinguished_name = named(name);
    params.subject_alt_names = names;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // Servers are clients too: a coordinator calls its workers, and every process calls etcd. A client never serves.
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    if serves {
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    params.use_authority_key_identifier_extension = true;
    validity(&mut params, args.days);
    let key = KeyPair::generate().context("cannot make a key")?;
    let certificate = params.signed_by(&key, issuer).context("cannot make a certificate")?;
    write(&args.dir.join(format!("{file}.key")), key.serialize_pem().as_bytes(), true)?;
    write(&args.dir.join(format!("{file}.pem")), certificate.pem().as_bytes(), false)
}

/// Replaces the file in one step, so that a process that reads it now sees a whole file; secrets are readable only by
/// their owner.
fn write(path: &Path, bytes: &[u8], secret: bool) -> anyhow::Result<()> {
    let cannot = || format!("cannot write '{}'", path.display());
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder).with_context(cannot)?;
    file.write_all(bytes).with_context(cannot)?;
    if !secret {
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644)).with_context(cannot)?;
    }
    file.persist(path).with_context(cannot)?;
    Ok(())
}
