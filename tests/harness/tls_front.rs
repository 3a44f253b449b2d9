//! TLS before a model server, with a certificate that no system trusts.
//!
//! Invariant: what comes through is passed on byte for byte; a handshake that the client breaks off is counted, and
//! nothing of it reaches the server.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use protocol::{Fingerprint, TrustedCertificate};
use rcgen::{CertificateParams, KeyPair};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    runtime::Runtime,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    },
};

/// What is odd about a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certificate {
    /// It vouches for itself.
    SelfSigned,
    /// An authority that nobody knows vouches for it.
    OwnAuthority,
    /// The same, and it is for another host.
    WrongName,
    /// The same as the first of these two, and its time is over.
    Expired,
}

/// A front, for as long as it lives.
pub struct TlsFront {
    address: SocketAddr,
    certificate: Vec<u8>,
    broken_off: Arc<AtomicU64>,
    runtime: Option<Runtime>,
}

impl TlsFront {
    /// Listens on a free port of 127.0.0.1, and passes on to `server`.
    pub fn before(server: SocketAddr, odd: Certificate) -> Self {
        let (chain, key) = made(odd);
        let certificate = chain[0].to_vec();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("TLS 1.2 and 1.3")
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("a certificate with its key");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        listener
            .set_nonblocking(true)
            .expect("a listener for tokio");
        let address = listener.local_addr().expect("an address");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .thread_name("tls-front")
            .build()
            .expect("a runtime for the front");
        let broken_off = Arc::new(AtomicU64::new(0));
        let handle = runtime.handle().clone();
        let count = Arc::clone(&broken_off);
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).expect("a non-blocking listener");
            while let Ok((socket, _)) = listener.accept().await {
                let (acceptor, count) = (acceptor.clone(), Arc::clone(&count));
                handle.spawn(async move {
                    let Ok(mut client) = acceptor.accept(socket).await else {
                        count.fetch_add(1, Ordering::SeqCst);
                        return;
                    };
                    let Ok(mut server) = TcpStream::connect(server).await else {
                        return;
                    };
                    // Either side may break off; the other is closed then.
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Self {
            address,
            certificate,
            broken_off,
            runtime: Some(runtime),
        }
    }

    /// `127.0.0.1:PORT`
    pub fn endpoint(&self) -> String {
        self.address.to_string()
    }

    /// Handshakes that the client broke off.
    pub fn broken_off(&self) -> u64 {
        self.broken_off.load(Ordering::SeqCst)
    }

    /// The SHA-256 of its certificate.
    pub fn fingerprint(&self) -> Fingerprint {
        let digest = ::ring::digest::digest(&::ring::digest::SHA256, &self.certificate);
        Fingerprint::from_bytes(digest.as_ref().try_into().expect("32 bytes"))
    }

    /// What a user notes who trusts it.
    pub fn trusted(&self) -> TrustedCertificate {
        TrustedCertificate {
            endpoint: self.endpoint(),
            sha256: self.fingerprint(),
        }
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn made(odd: Certificate) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let host = match odd {
        Certificate::WrongName => "elsewhere.example",
        Certificate::SelfSigned | Certificate::OwnAuthority | Certificate::Expired => "127.0.0.1",
    };
    let mut params = CertificateParams::new(vec![host.to_owned()]).expect("a host");
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, "The box in the cupboard");
    if odd == Certificate::Expired {
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    }
    let key = KeyPair::generate().expect("a key");
    let chain = if odd == Certificate::SelfSigned {
        vec![
            params
                .self_signed(&key)
                .expect("a certificate")
                .der()
                .clone(),
        ]
    } else {
        let mut authority = CertificateParams::new(Vec::new()).expect("no hosts");
        authority
            .distinguished_name
            .push(rcgen::DnType::CommonName, "Nobody’s authority");
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority_key = KeyPair::generate().expect("a key");
        let issuer = rcgen::Issuer::new(authority, authority_key);
        vec![
            params
                .signed_by(&key, &issuer)
                .expect("a certificate")
                .der()
                .clone(),
        ]
    };
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    (chain, key)
}
