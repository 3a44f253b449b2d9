//! Servers: where their keys go, whom TLS believes, and which way leads to them.

use std::sync::Arc;

use engine::{KEYCHAIN_WAIT, mutant::Mutant};
use protocol::{
    Auth, Connection, KeyChange, KeyPlace, Op, ProbeArgs, Provider, ProxyChoice, SecretName,
    TrustedCertificate, TypedKey,
};
use tests::{
    child::{ChildMutant, Held},
    client::{Client, Page},
    keychain::TestKeychain,
    model_server::{Answer, ModelServer, refused_address},
    tls_front::{Certificate, TlsFront},
    world::World,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use transcript::Transcript;

use super::{CHILD, DIALECT, end_of};

const KEY: &str = "sk-mutant-sentinel-0815";

async fn without(mutant: Option<Mutant>, keychain: &TestKeychain) -> World {
    let mut world = World::without_engine();
    world.mutant = mutant;
    world.keychain = Arc::new(keychain.clone());
    world.open().await;
    world
}

async fn keep(world: &World, server: &Provider, place: KeyPlace) {
    let change = KeyChange::Keep {
        name: SecretName::Key,
        typed: TypedKey::new(KEY),
        place,
    };
    let kept = world.engine().change_key(server.id, change).await;
    kept.expect("the key is kept");
}

async fn ask(world: &World, server: &ModelServer) -> Client<Transcript> {
    let session = world.begin_with(server.model(), "Hello?").await;
    world.page().await.follow(session)
}

/// Its server's address is changed after the key was entered.
pub(super) async fn moved(mutant: Option<Mutant>) -> String {
    let world = without(mutant, &TestKeychain::default()).await;
    let (home, other) = (ModelServer::start(DIALECT), ModelServer::start(DIALECT));
    other.script(Answer::whole(DIALECT, "Thanks for the key."));
    world.add(home.provider()).await;
    keep(&world, &home.provider(), KeyPlace::Memory).await;
    let provider = Provider {
        base_url: other.root(),
        ..home.provider()
    };
    let change = Op::ChangeProvider { provider };
    world.submit(change).await.expect("the address is changed");
    let window = ask(&world, &home).await;
    let end = end_of(&window).await;
    let shown = other
        .chats()
        .iter()
        .filter(|chat| chat.header("authorization").is_some())
        .count();
    other.forget_scripts();
    format!("{end} shown{shown}")
}

/// A key comes in quotes, as it stood in a file of settings.
pub(super) async fn pasted_in_quotes(mutant: Option<Mutant>) -> String {
    let world = without(mutant, &TestKeychain::default()).await;
    let server = ModelServer::start(DIALECT);
    server.script(Answer::whole(DIALECT, "Come in."));
    world.add(server.provider()).await;
    let change = KeyChange::Keep {
        name: SecretName::Key,
        typed: TypedKey::new(&format!("\"{KEY}\"")),
        place: KeyPlace::Memory,
    };
    let kept = world.engine().change_key(server.provider().id, change);
    kept.await.expect("the key is kept");
    let window = ask(&world, &server).await;
    end_of(&window).await;
    let bearer = format!("Bearer {KEY}");
    let shown = server.chats();
    let alone = shown
        .iter()
        .filter(|chat| chat.header("authorization") == Some(&bearer));
    format!("key{}", alone.count())
}

/// A server says that its list of models is at another one.
pub(super) async fn pointed_elsewhere(mutant: Option<Mutant>) -> String {
    let world = without(mutant, &TestKeychain::default()).await;
    let home = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let other = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let (at_home, elsewhere) = (home.local_addr(), other.local_addr());
    let provider = Provider {
        base_url: format!("http://{}/v1", at_home.expect("an address")),
        connection: Connection {
            auth: Auth::ApiKey,
            ..Connection::default()
        },
        ..ModelServer::start(protocol::Dialect::OpenAiChat).provider()
    };
    world.add(provider.clone()).await;
    keep(&world, &provider, KeyPlace::Memory).await;
    let points = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://{}/v1/models\r\nContent-Length: 0\r\n\r\n",
        elsewhere.expect("an address")
    );
    let engine = world.engine().clone();
    let asked = engine.models(provider.id);
    let served = async {
        heard(&home, &points).await;
        std::future::pending::<()>().await
    };
    let lists = "HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{\"data\":[]}";
    let mut shown = 0;
    tokio::select! {
        biased;
        () = served => {}
        head = heard(&other, lists) => shown = usize::from(head.contains(KEY)),
        _ = asked => {}
    }
    format!("shown{shown}")
}

/// Takes one request, answers it, and says what its head was.
async fn heard(listener: &TcpListener, answer: &str) -> String {
    let (mut socket, _) = listener.accept().await.expect("a connection");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if socket.read(&mut byte).await.expect("a request") == 0 {
            break;
        }
        head.extend_from_slice(&byte);
    }
    // The other side may have left already.
    let _ = socket.write_all(answer.as_bytes()).await;
    String::from_utf8_lossy(&head).into_owned()
}

/// An address on the internet, typed without its scheme, that answers in the clear only and wants a key.
pub(super) async fn in_the_clear(mutant: Option<Mutant>) -> String {
    let world = without(mutant, &TestKeychain::default()).await;
    // A proxy that sees everything and has no way to TLS.
    let proxy = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let url = format!("http://{}", proxy.local_addr().expect("an address"));
    let args = ProbeArgs {
        key: Some(TypedKey::new(KEY)),
        connection: Connection {
            proxy: ProxyChoice::Proxy { url },
            ..Connection::default()
        },
        ..ProbeArgs::of("llm.example")
    };
    let watching = async {
        let refuses = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        while !heard(&proxy, refuses).await.contains(KEY) {}
    };
    let engine = world.engine().clone();
    tokio::select! {
        biased;
        () = watching => "shown1".to_owned(),
        _ = engine.probe_by(&args) => "shown0".to_owned(),
    }
}

/// A certificate that is trusted at another port is shown at this one.
pub(super) async fn trusted_elsewhere(mutant: Option<Mutant>) -> String {
    let world = without(mutant, &TestKeychain::default()).await;
    let server = ModelServer::start(DIALECT);
    server.script(Answer::whole(DIALECT, "Trust me."));
    let front = TlsFront::before(server.address(), Certificate::SelfSigned);
    let trusts = TrustedCertificate {
        endpoint: "127.0.0.1:1".to_owned(),
        ..front.trusted()
    };
    let provider = Provider {
        base_url: format!("https://{}", front.endpoint()),
        connection: Connection {
            trusts: Some(trusts),
            ..Connection::default()
        },
        ..server.provider()
    };
    world.add(provider).await;
    let window = ask(&world, &server).await;
    let end = end_of(&window).await;
    server.forget_scripts();
    end
}

/// The system names a proxy that is not there, and the server is on this computer.
pub(super) async fn past_the_proxy(mutant: Option<Mutant>) -> String {
    let world = World::without_engine();
    let held = Held {
        system_proxy: Some(refused_address().port()),
        mutant: mutant.map(|_| ChildMutant::LocalThroughProxy),
        ..Held::default()
    };
    let child = world.spawn_held(CHILD.as_ref(), held).await;
    let server = ModelServer::start(DIALECT);
    server.script(Answer::whole(DIALECT, "Right here."));
    world.add(server.provider()).await;
    let session = world.begin_with(server.model(), "Hello?").await;
    let window = Page::load(&world.line, "main").await.follow(session);
    let end = tokio::select! {
        biased;
        end = end_of(&window) => end,
        _ = window.until_status("another attempt", |status| {
            matches!(status.phase, protocol::Phase::Retrying { .. })
        }) => "asks again".to_owned(),
    };
    server.forget_scripts();
    child.kill().await;
    end
}

/// A keychain that waits for its password, and nobody types it.
pub(super) async fn locked(mutant: Option<Mutant>) -> String {
    let keychain = TestKeychain::default();
    let mut world = without(mutant, &keychain).await;
    let server = ModelServer::start(DIALECT);
    world.add(server.provider()).await;
    keep(&world, &server.provider(), KeyPlace::Keychain).await;
    // What was entered is known to the engine that it was entered in.
    world.restart().await;
    keychain.lock();
    let window = ask(&world, &server).await;
    let long = KEYCHAIN_WAIT * 60 * 24 * 365;
    tokio::select! {
        () = world.clock.until_armed(KEYCHAIN_WAIT) => {}
        () = world.clock.until_armed(long) => {}
    }
    world.clock.advance(KEYCHAIN_WAIT);
    let end = tokio::select! {
        biased;
        end = end_of(&window) => end,
        () = world.clock.until_armed(long - KEYCHAIN_WAIT) => "waits on".to_owned(),
    };
    keychain.unlock();
    server.forget_scripts();
    end
}
