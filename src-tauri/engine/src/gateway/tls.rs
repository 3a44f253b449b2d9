//! Whom TLS believes: what the system believes, and the one certificate that the user trusts at one endpoint.
//!
//! Invariant: the system is asked first, always. What it refuses passes only if the user trusts exactly this
//! certificate at exactly this host; that its owner has the key to it is proved all the same. A refusal carries what
//! was shown, so that it can be told by its fingerprint.

use std::sync::Arc;

use protocol::{CertificateFault, Fingerprint, ShownCertificate, TrustedCertificate};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime},
};

use transcript::words::visible;

use super::certificate::Facts;

/// What clients with different trust have in common.
pub(super) struct Tls {
    provider: Arc<CryptoProvider>,
    system: Arc<dyn ServerCertVerifier>,
}

impl Tls {
    /// # Errors
    /// When the system's own certificates cannot be read.
    pub(super) fn of_the_system() -> Result<Self, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let system = rustls_platform_verifier::Verifier::new(Arc::clone(&provider))?;
        Ok(Self {
            provider,
            system: Arc::new(system),
        })
    }

    /// # Errors
    /// None that a build of Holdfast has and another has not.
    pub(super) fn config(
        &self,
        trusts: Option<&TrustedCertificate>,
    ) -> Result<ClientConfig, rustls::Error> {
        let judge = Judge {
            system: Arc::clone(&self.system),
            trusts: trusts.cloned(),
        };
        let builder = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()?;
        Ok(builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(judge))
            .with_no_client_auth())
    }
}

#[derive(Debug)]
struct Judge {
    system: Arc<dyn ServerCertVerifier>,
    trusts: Option<TrustedCertificate>,
}

impl ServerCertVerifier for Judge {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let judged = self.system.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        let error = match judged {
            Ok(verified) => return Ok(verified),
            Err(error) => error,
        };
        let sha256 = fingerprint(end_entity);
        let trusted = self.trusts.as_ref().is_some_and(|trusted| {
            trusted.sha256 == sha256 && is_host_of(&trusted.endpoint, server_name)
        });
        if trusted {
            return Ok(ServerCertVerified::assertion());
        }
        let certificate = shown(end_entity, sha256, server_name, now, &error);
        Err(rustls::Error::InvalidCertificate(CertificateError::Other(
            OtherError(Arc::new(Refused { certificate, error })),
        )))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.system.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.system.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.system.supported_verify_schemes()
    }
}

/// A certificate that was not taken. Its endpoint holds the host alone: the port is not TLS's business.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the certificate {} is not acceptable: {error}", certificate.sha256.in_pairs())]
pub(super) struct Refused {
    pub(super) certificate: ShownCertificate,
    error: rustls::Error,
}

impl Refused {
    /// The refusal that a TLS error is, if it is one.
    pub(super) fn within(error: &rustls::Error) -> Option<&Self> {
        match error {
            rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(inner))) => {
                inner.downcast_ref()
            }
            _ => None,
        }
    }
}

/// The SHA-256 of a certificate as it is sent.
pub(super) fn fingerprint(certificate: &CertificateDer<'_>) -> Fingerprint {
    let digest = ring::digest::digest(&ring::digest::SHA256, certificate.as_ref());
    let mut bytes = [0; 32];
    // A SHA-256 has 32 bytes.
    for (to, from) in bytes.iter_mut().zip(digest.as_ref()) {
        *to = *from;
    }
    Fingerprint::from_bytes(bytes)
}

/// Whether `host:port` is of this host.
fn is_host_of(endpoint: &str, name: &ServerName<'_>) -> bool {
    let host = endpoint.rsplit_once(':').map_or(endpoint, |(host, _)| host);
    host.eq_ignore_ascii_case(&host_words(name))
}

fn host_words(name: &ServerName<'_>) -> String {
    match name {
        ServerName::DnsName(name) => name.as_ref().to_owned(),
        ServerName::IpAddress(address) => match std::net::IpAddr::from(*address) {
            std::net::IpAddr::V4(address) => address.to_string(),
            std::net::IpAddr::V6(address) => format!("[{address}]"),
        },
        other => other.to_str().into_owned(),
    }
}

/// All that is wrong with it, not only what the system met first.
fn shown(
    certificate: &CertificateDer<'_>,
    sha256: Fingerprint,
    name: &ServerName<'_>,
    now: UnixTime,
    error: &rustls::Error,
) -> ShownCertificate {
    let facts = Facts::read(certificate.as_ref());
    let mut faults = Vec::new();
    let mut add = |fault| {
        if !faults.contains(&fault) {
            faults.push(fault);
        }
    };
    if let rustls::Error::InvalidCertificate(reason) = error {
        match reason {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                add(CertificateFault::Expired);
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                add(CertificateFault::NotYetValid);
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                add(CertificateFault::WrongName);
            }
            CertificateError::UnknownIssuer if !facts.is_self_signed() => {
                add(CertificateFault::UnknownIssuer);
            }
            _ => {}
        }
    }
    if facts.is_self_signed() {
        add(CertificateFault::SelfSigned);
    }
    let now_ms = i64::try_from(now.as_secs().saturating_mul(1000)).unwrap_or(i64::MAX);
    if facts.not_after.is_some_and(|end| end.millis() < now_ms) {
        add(CertificateFault::Expired);
    }
    if facts
        .not_before
        .is_some_and(|begin| begin.millis() > now_ms)
    {
        add(CertificateFault::NotYetValid);
    }
    let is_for = rustls::server::ParsedCertificate::try_from(certificate)
        .and_then(|parsed| rustls::client::verify_server_name(&parsed, name));
    if is_for.is_err() {
        add(CertificateFault::WrongName);
    }
    if faults.is_empty() {
        faults.push(CertificateFault::Other);
    }
    ShownCertificate {
        endpoint: host_words(name),
        sha256,
        // Whoever made the certificate chose these words, and they stand where somebody decides whom to trust.
        subject: visible(&facts.subject),
        issuer: visible(&facts.issuer),
        names: facts.names.iter().map(|name| visible(name)).collect(),
        not_before: facts.not_before,
        not_after: facts.not_after,
        faults,
    }
}
