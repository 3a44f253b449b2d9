//! Servers that want something: a key, trust in their certificate, another way than the usual.

use std::{path::Path, sync::Arc};

use protocol::{
    Auth, Check, Connection, CustomHeader, Dialect, DraftServer, EventBody, Examination,
    ExamineArgs, Examined, Finding, Fix, KeyChange, KeyPlace, Op, ProbeReport, Provider,
    ProviderId, ProxyChoice, SecretName, TypedKey, Verdict,
};
use tests::{
    keychain::TestKeychain,
    model_server::{Answer, DIALECTS, ModelServer, Script, refused_address},
    picture,
    sentinel::Sentinel,
    tls_front::{Certificate, TlsFront},
    verdict::judge,
    world::World,
};

async fn world(keychain: &TestKeychain) -> World {
    let mut world = World::without_engine();
    world.keychain = Arc::new(keychain.clone());
    world.open().await;
    world
}

async fn keep(world: &World, server: &Provider, name: SecretName, secret: &str, place: KeyPlace) {
    let typed = TypedKey::new(secret);
    let change = KeyChange::Keep { name, typed, place };
    let kept = world.engine().change_key(server.id, change).await;
    kept.expect("it is kept");
}

/// Every file of a data folder, as far as it is text.
fn files(folder: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            let bytes = std::fs::read(&path).expect("a readable file");
            let text = String::from_utf8_lossy(&bytes).into_owned();
            found.push((path.display().to_string(), text));
        }
    }
    found
}

/// How the last turn of a session ended.
async fn asked(world: &World, server: &ModelServer) -> (String, String) {
    let session = world.begin_with(server.model(), "Hello?").await;
    let window = world.page().await.follow(session);
    window.until_idle().await;
    let end = window.look(|shown| {
        let turn = shown.and_then(|shown| shown.turns().next_back());
        picture::outcome(turn.and_then(|turn| turn.outcome.as_ref()))
    });
    (end, window.text())
}

/// Ollama refuses whole requests for it; the model answers all the same, and whoever chose a folder learns that none of it
/// was looked at.
#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_refuses_tools_is_asked_without_and_every_answer_says_so() {
    let world = World::new().await;
    let dialect = Dialect::Ollama;
    let server = ModelServer::start(dialect);
    let words = "registry.ollama.ai/library/lighthouse:1b does not support tools";
    server.script(Script::error(dialect, 400, words));
    server.script(Answer::whole(dialect, "Hello."));
    let folder = tempfile::tempdir().expect("a folder");
    let session = world.begin_in(&server, folder.path(), "Hello?").await;
    let window = world.page().await.follow(session);
    window.until_idle().await;
    server.script(Answer::whole(dialect, "Still here."));
    world.say(session, "And now?").await;
    window.sees("Still here.").await;
    window.until_idle().await;
    let chats = server.chats();
    let told = |nth: usize| chats[nth].json()["tools"].as_array().map_or(0, Vec::len) as u64;
    assert_eq!([told(1), told(2)], [0, 0], "it is not asked for that again");
    let events = world.events(session).into_iter();
    let untold: Vec<u64> = events
        .filter_map(|event| match event.body {
            EventBody::StepEnded { untold_tools, .. } => Some(untold_tools),
            _ => None,
        })
        .collect();
    assert_eq!(untold, [told(0), told(0)]);
    assert!(told(0) > 1, "a folder has tools beside the clock");
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_in_the_keychain_and_in_the_outgoing_header_and_nowhere_else() {
    for dialect in DIALECTS {
        let secret = Sentinel::new("sk-");
        let typed = format!(" {secret}\n");
        let keychain = TestKeychain::default();
        let world = world(&keychain).await;
        let server = ModelServer::start(dialect);
        world.add(server.provider()).await;
        keep(
            &world,
            &server.provider(),
            SecretName::Key,
            &typed,
            KeyPlace::Keychain,
        )
        .await;
        assert_eq!(keychain.count(), 1);
        // A server that repeats what it was sent, in an error and in its own words.
        let words = format!("Incorrect API key provided: {secret}");
        server.script(Script::error(dialect, 401, &words));
        let (end, refused) = asked(&world, &server).await;
        assert_eq!(end, "failed: KeyRejected", "{refused}");
        server.script(Answer::whole(dialect, "Kelp."));
        let (end, answered) = asked(&world, &server).await;
        assert_eq!(end, "completed", "{answered}");
        for chat in server.chats() {
            let name = match dialect {
                Dialect::Anthropic => "x-api-key",
                Dialect::Ollama | Dialect::OpenAiChat | Dialect::Local => "authorization",
            };
            let shown = chat.header(name).expect("the header");
            assert_eq!(
                secret.count_in(shown),
                1,
                "{dialect:?}: as it was pasted, trimmed"
            );
        }
        let report = world.engine().keys(server.provider().id).await;
        let library = world.engine().library().await;
        let mut told = format!("{report:?}{library:?}{refused}{answered}");
        world.engine().health().await.expect("a health report");
        told.push_str(&format!("{:?}", world.engine().counters()));
        assert_eq!(secret.count_in(&told), 0, "{told}");
        let copy = engine::backup(world.data_dir(), None, protocol::Timestamp::from_millis(1));
        copy.expect("a backup");
        let kept = files(world.data_dir());
        assert!(
            kept.len() >= 3,
            "the database, the list of keys and the backup: {kept:?}"
        );
        for (file, text) in kept {
            assert_eq!(secret.count_in(&text), 0, "{dialect:?}: {file}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_servers_own_headers_go_with_every_request_and_secret_ones_are_kept_like_keys() {
    let (password, ticket) = (Sentinel::new("pw"), Sentinel::new("ticket"));
    let world = world(&TestKeychain::default()).await;
    let server = ModelServer::start(Dialect::OpenAiChat);
    let provider = Provider {
        connection: Connection {
            auth: Auth::Basic {
                user: "kelp".to_owned(),
            },
            headers: vec![
                CustomHeader {
                    name: "X-Org".to_owned(),
                    value: Some("sea".to_owned()),
                },
                CustomHeader {
                    name: "X-Ticket".to_owned(),
                    value: None,
                },
            ],
            ..Connection::default()
        },
        ..server.provider()
    };
    world.add(provider.clone()).await;
    let (end, text) = asked(&world, &server).await;
    assert_eq!(
        end, "failed: KeyRejected",
        "its value is not known yet: {text}"
    );
    let name = SecretName::Header {
        name: "x-ticket".to_owned(),
    };
    keep(
        &world,
        &provider,
        name,
        &ticket.to_string(),
        KeyPlace::Keychain,
    )
    .await;
    keep(
        &world,
        &provider,
        SecretName::Key,
        &password.to_string(),
        KeyPlace::Keychain,
    )
    .await;
    let encoded = {
        use std::fmt::Write;
        let mut text = String::new();
        write!(text, "kelp:{password}").expect("a string takes everything");
        text
    };
    server.script(Answer::whole(Dialect::OpenAiChat, "Kelp."));
    let (end, text) = asked(&world, &server).await;
    assert_eq!(end, "completed", "{text}");
    let chat = server.chat(1).await;
    assert_eq!(chat.header("x-org"), Some("sea"));
    assert_eq!(chat.header("x-ticket"), Some(ticket.to_string().as_str()));
    let basic = chat.header("authorization").expect("the header");
    assert!(basic.starts_with("Basic "), "{basic}");
    assert_eq!(basic.len(), "Basic ".len() + encoded.len().div_ceil(3) * 4);
    for (file, text) in files(world.data_dir()) {
        assert_eq!(
            password.count_in(&text) + ticket.count_in(&text),
            0,
            "{file}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_nobody_knows_is_named_by_its_fingerprint_and_trusted_for_its_server_alone() {
    for (odd, words) in [
        (Certificate::SelfSigned, "nobody but itself vouches for it"),
        (Certificate::OwnAuthority, "Nobody’s authority"),
        (Certificate::WrongName, "it is for elsewhere.example"),
        (Certificate::Expired, "it expired 2021-01-01"),
    ] {
        let world = world(&TestKeychain::default()).await;
        let server = ModelServer::start(Dialect::Ollama);
        let front = TlsFront::before(server.address(), odd);
        let provider = Provider {
            base_url: format!("https://{}", front.endpoint()),
            ..server.provider()
        };
        world.add(provider.clone()).await;
        let (end, text) = asked(&world, &server).await;
        assert_eq!(end, "failed: ConnectFailed", "{odd:?}: {text}");
        let ProbeReport::Fails { failure } = world.engine().models(provider.id).await else {
            panic!("{odd:?} passes");
        };
        let print = front.fingerprint().in_pairs();
        for words in [words, print.as_str()] {
            let said = &failure.message;
            assert!(said.contains(words), "{odd:?}: {words:?} is not in {said}");
        }
        assert_eq!(
            server.counters().dials,
            0,
            "nothing of the request got through"
        );
        assert!(front.broken_off() > 0);

        let trusting = Provider {
            connection: Connection {
                trusts: Some(front.trusted()),
                ..Connection::default()
            },
            ..provider.clone()
        };
        let change = Op::ChangeProvider { provider: trusting };
        world.submit(change).await.expect("it is trusted");
        server.script(Answer::whole(Dialect::Ollama, "Kelp."));
        let (end, text) = asked(&world, &server).await;
        assert_eq!(end, "completed", "{odd:?}: {text}");

        // Another server with a certificate of the same make is as strange as before.
        let other = TlsFront::before(server.address(), odd);
        let moved = Provider {
            base_url: format!("https://{}", other.endpoint()),
            connection: Connection {
                trusts: Some(front.trusted()),
                ..Connection::default()
            },
            ..provider.clone()
        };
        let change = Op::ChangeProvider { provider: moved };
        world.submit(change).await.expect("it is changed");
        let report = world.engine().models(provider.id).await;
        assert!(
            matches!(report, ProbeReport::Fails { .. }),
            "{odd:?}: {report:?}"
        );
        // And so is the same endpoint with another certificate.
        let swapped = Provider {
            base_url: format!("https://{}", other.endpoint()),
            connection: Connection {
                trusts: Some(protocol::TrustedCertificate {
                    endpoint: other.endpoint(),
                    ..front.trusted()
                }),
                ..Connection::default()
            },
            ..provider.clone()
        };
        let change = Op::ChangeProvider { provider: swapped };
        world.submit(change).await.expect("it is changed");
        let ProbeReport::Fails { failure } = world.engine().models(provider.id).await else {
            panic!("{odd:?}: another certificate passes for the trusted one");
        };
        assert!(
            failure
                .message
                .contains("not the certificate that you trusted"),
            "{failure:?}"
        );
    }
}

/// The one finding of this check.
fn finding(examined: &Examination, check: Check) -> &Finding {
    let found = examined.findings.iter().find(|f| f.check == check);
    found.unwrap_or_else(|| panic!("{check:?} is not in {examined:#?}"))
}

async fn examined(world: &World, provider: &Provider) -> Examination {
    let args = ExamineArgs {
        server: Examined::Known { id: provider.id },
        model: None,
    };
    let examined = world.engine().examine(args).await;
    examined.expect("it is examined")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_finds_where_a_servers_api_begins_and_what_it_offers_works() {
    let (openai, ollama, anthropic) = (Dialect::OpenAiChat, Dialect::Ollama, Dialect::Anthropic);
    for (dialect, entered, path) in [
        (openai, openai, "/v1/v1"),
        (openai, openai, "/v1/chat/completions"),
        (openai, openai, "/v1/chat/completions/chat/completions"),
        (openai, openai, "/wrong"),
        (openai, ollama, ""),
        (ollama, ollama, "/api"),
        (ollama, ollama, "/v1"),
        (ollama, ollama, "/api/chat"),
        (ollama, openai, "/v1/v1"),
        (anthropic, anthropic, ""),
        (anthropic, anthropic, "/v1/messages"),
    ] {
        let world = world(&TestKeychain::default()).await;
        let server = ModelServer::start(dialect);
        let provider = Provider {
            dialect: entered,
            base_url: format!("{}{path}", server.root()),
            ..server.provider()
        };
        world.add(provider.clone()).await;
        let before = examined(&world, &provider).await;
        let what = format!("{dialect:?} entered as {entered:?} at {path:?}");
        assert!(!before.is_well(), "{what}: {before:#?}");
        let Some(Fix::Change { provider: better }) = &finding(&before, Check::Address).fix else {
            panic!("{what}: {before:#?}");
        };
        let change = Op::ChangeProvider {
            provider: (**better).clone(),
        };
        world.submit(change).await.expect("the fix is taken");
        let after = examined(&world, &provider).await;
        assert!(after.is_well(), "{what}: {after:#?}");
        server.script(Answer::whole(dialect, "Kelp."));
        let (end, text) = asked(&world, &server).await;
        assert_eq!(end, "completed", "{what}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_tells_who_is_away_who_is_strange_and_who_speaks_better_in_another_language() {
    let world = world(&TestKeychain::default()).await;
    let away = tests::model_server::provider_at(Dialect::Ollama, refused_address());
    world.add(away.clone()).await;
    let report = examined(&world, &away).await;
    assert_eq!(finding(&report, Check::Connection).verdict, Verdict::Bad);

    let server = ModelServer::start(Dialect::Ollama);
    let as_openai = Provider {
        dialect: Dialect::OpenAiChat,
        base_url: format!("{}/v1", server.root()),
        ..server.provider()
    };
    world.add(as_openai.clone()).await;
    let report = examined(&world, &as_openai).await;
    assert!(report.is_well(), "{report:#?}");
    let Some(Fix::Change { provider }) = &finding(&report, Check::Language).fix else {
        panic!("{report:#?}");
    };
    assert_eq!(provider.base_url, server.root());

    let front = TlsFront::before(server.address(), Certificate::WrongName);
    let strange = Provider {
        id: ProviderId::from_bits(99),
        base_url: format!("https://{}", front.endpoint()),
        ..server.provider()
    };
    world.add(strange.clone()).await;
    let report = examined(&world, &strange).await;
    let Some(Fix::Trust { certificate }) = &finding(&report, Check::Certificate).fix else {
        panic!("{report:#?}");
    };
    assert_eq!(certificate.sha256, front.fingerprint());
    assert_eq!(certificate.trusted(), front.trusted());
    assert_eq!(certificate.names, ["elsewhere.example"]);
    let mut trusting = strange.clone();
    trusting.connection.trusts = Some(certificate.trusted());
    let change = Op::ChangeProvider { provider: trusting };
    world.submit(change).await.expect("it is trusted");
    let report = examined(&world, &strange).await;
    assert!(report.is_well(), "{report:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_certificate_of_a_proxy_is_not_taken_for_the_servers() {
    let world = world(&TestKeychain::default()).await;
    let server = ModelServer::start(Dialect::Ollama);
    let front = TlsFront::before(server.address(), Certificate::SelfSigned);
    // Nobody is behind that name, and the proxy would be asked for it.
    for base in ["http://gpubox.lan:11434", "https://gpubox.lan:8443"] {
        let proxied = Provider {
            base_url: base.to_owned(),
            connection: Connection {
                proxy: ProxyChoice::Proxy {
                    url: format!("https://{}", front.endpoint()),
                },
                ..Connection::default()
            },
            ..server.provider()
        };
        let draft = Box::new(DraftServer {
            provider: proxied,
            key: None,
        });
        let args = ExamineArgs {
            server: Examined::Draft { draft },
            model: None,
        };
        let examined = world.engine().examine(args).await.expect("it is examined");
        assert!(!examined.is_well(), "{base}: {examined:#?}");
        let said = &finding(&examined, Check::Proxy).message;
        assert!(said.contains(&front.endpoint()), "{base}: {said}");
        let trusts = examined.findings.iter().any(|f| {
            f.fix
                .as_ref()
                .is_some_and(|fix| matches!(fix, Fix::Trust { .. }))
        });
        assert!(!trusts, "{base}: {examined:#?}");
    }
    assert!(front.broken_off() >= 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_secret_header_is_not_kept_is_not_said_to_refuse_a_key() {
    let world = world(&TestKeychain::default()).await;
    let server = ModelServer::start(Dialect::OpenAiChat);
    let provider = Provider {
        connection: Connection {
            headers: vec![CustomHeader {
                name: "X-Ticket".to_owned(),
                value: None,
            }],
            ..Connection::default()
        },
        ..server.provider()
    };
    world.add(provider.clone()).await;
    let report = examined(&world, &provider).await;
    let said = &finding(&report, Check::Key).message;
    assert!(said.contains("X-Ticket"), "{said}");
    let name = SecretName::Header {
        name: "X-Ticket".to_owned(),
    };
    keep(&world, &provider, name, "ticket-0815", KeyPlace::Keychain).await;
    let report = examined(&world, &provider).await;
    assert!(report.is_well(), "{report:#?}");
}
