//! From what was seen to what is found, by table.

use protocol::{
    CertificateFault, Connection, Fingerprint, MacAddress, ProviderId, Think, TrustedCertificate,
};

use super::{findings::*, *};
use protocol::{Check, Failure, Finding, Fix, Model, ProxyChoice, ShownCertificate, Verdict};

fn provider(dialect: Dialect, base_url: &str) -> Provider {
    Provider {
        id: ProviderId::from_bits(7),
        name: "Box".to_owned(),
        dialect,
        base_url: base_url.to_owned(),
        num_ctx: None,
        keep_alive: None,
        files: Vec::new(),
        think: Think::default(),
        limits: None,
        connection: Connection::default(),
    }
}

fn seen(dialect: Dialect, base_url: &str) -> Seen {
    let provider = provider(dialect, base_url);
    Seen {
        distance: join(base_url, "").as_ref().map(Distance::of),
        provider,
        has_key: false,
        key_trouble: None,
        headers_unknown: Vec::new(),
        wanted: Wanted::default(),
        system_proxy: None,
        names: Names::Given,
        knocks: Vec::new(),
        here: None,
        elsewhere: Vec::new(),
    }
}

fn works(models: &[&str]) -> Option<Asked> {
    Some(Asked::Works {
        server: "Ollama 0.12.3".to_owned(),
        models: models.iter().map(|name| Model::named(*name)).collect(),
    })
}

fn fails(code: FailureCode, words: &str) -> Option<Asked> {
    Some(Asked::Fails {
        failure: Failure::new(code, words),
        loading: false,
        certificate: None,
    })
}

fn answers(dialect: Dialect, base_url: &str) -> Elsewhere {
    Elsewhere {
        base_url: base_url.to_owned(),
        dialect,
        server: "llama.cpp".to_owned(),
        models: vec![Model::named("m")],
    }
}

fn at(address: &str, knock: Knock) -> Vec<(SocketAddr, Knock)> {
    vec![(address.parse().unwrap(), knock)]
}

fn of(found: &[Finding], check: Check) -> &Finding {
    let one = found.iter().find(|finding| finding.check == check);
    one.unwrap_or_else(|| panic!("{check:?} is not in {found:#?}"))
}

/// The checks that are bad.
fn bad(found: &[Finding]) -> Vec<Check> {
    let bad = found
        .iter()
        .filter(|finding| finding.verdict == Verdict::Bad);
    bad.map(|finding| finding.check).collect()
}

fn changed(finding: &Finding) -> &Provider {
    match &finding.fix {
        Some(Fix::Change { provider }) => provider,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_address_that_leads_beside_the_api_is_found_with_the_one_that_is_meant() {
    let (openai, ollama) = (Dialect::OpenAiChat, Dialect::Ollama);
    for (dialect, base, there, fixed, words) in [
        (
            openai,
            "http://h:1/v1/v1",
            openai,
            "http://h:1/v1",
            "The path leads nowhere",
        ),
        (
            openai,
            "http://h:1",
            openai,
            "http://h:1/v1",
            "The path leads nowhere",
        ),
        (
            ollama,
            "http://h:1/api/api",
            ollama,
            "http://h:1",
            "The path leads nowhere",
        ),
        (
            openai,
            "http://h/v1",
            openai,
            "http://h:8080/v1",
            "The port is missing",
        ),
        (
            openai,
            "http://h:9/v1",
            openai,
            "http://h:8080/v1",
            "Nothing of use is at port 9",
        ),
        (
            openai,
            "https://h:1/v1",
            openai,
            "http://h:1/v1",
            "It speaks http there, not https",
        ),
        (
            openai,
            "http://h:1/v1",
            openai,
            "https://h:1/v1",
            "It speaks https there, not http",
        ),
        (
            ollama,
            "http://127.0.0.1:1",
            ollama,
            "http://localhost:1",
            "another form of the same address",
        ),
    ] {
        let mut seen = seen(dialect, base);
        seen.here = fails(FailureCode::BadStream, "404");
        seen.elsewhere = vec![answers(there, fixed)];
        let found = findings(&seen);
        let finding = of(&found, Check::Address);
        assert_eq!(finding.verdict, Verdict::Bad, "{base}");
        assert!(
            finding.message.contains(words),
            "{base}: {}",
            finding.message
        );
        let to = changed(finding);
        assert_eq!((to.base_url.as_str(), to.dialect), (fixed, there), "{base}");
        assert_eq!(to.id, seen.provider.id, "the same server, elsewhere");
    }
    let found = findings(&seen(openai, "gopher://x"));
    assert_eq!(bad(&found), [Check::Address]);
}

#[test]
fn the_address_that_is_most_like_the_one_that_was_typed_is_offered() {
    let mut seen = seen(Dialect::OpenAiChat, "http://h:1/v1/v1");
    seen.here = fails(FailureCode::BadStream, "404");
    seen.elsewhere = vec![
        answers(Dialect::OpenAiChat, "http://h:8080/v1"),
        answers(Dialect::OpenAiChat, "http://h:1/v1"),
        answers(Dialect::OpenAiChat, "http://h:1"),
        answers(Dialect::Ollama, "http://h:11434"),
    ];
    let found = findings(&seen);
    assert_eq!(
        changed(of(&found, Check::Address)).base_url,
        "http://h:1/v1"
    );
}

#[test]
fn names_and_connections_are_told_apart() {
    let mut unknown = seen(Dialect::Ollama, "http://gpubx:11434");
    unknown.names = Names::Unknown("no such host".to_owned());
    unknown.here = fails(FailureCode::ConnectFailed, "dns");
    assert_eq!(bad(&findings(&unknown)), [Check::Name]);

    let mut refused = seen(Dialect::Ollama, "http://127.0.0.1:11434");
    refused.knocks = at("127.0.0.1:11434", Knock::Refused);
    refused.here = fails(FailureCode::ConnectFailed, "refused");
    let found = findings(&refused);
    assert_eq!(bad(&found), [Check::Connection]);
    assert!(
        of(&found, Check::Connection)
            .message
            .contains("Is Ollama running?")
    );

    let mut half = seen(Dialect::Ollama, "http://localhost:11434");
    half.knocks = at("127.0.0.1:11434", Knock::Open);
    half.knocks.extend(at("[::1]:11434", Knock::Refused));
    half.here = works(&["m"]);
    let found = findings(&half);
    assert_eq!(bad(&found), []);
    let said = &of(&found, Check::Connection).message;
    assert!(said.contains("and not at [::1]:11434"), "{said}");

    let mut away = seen(Dialect::Ollama, "http://192.168.1.7:11434");
    away.knocks = at("192.168.1.7:11434", Knock::Unreachable);
    away.here = fails(FailureCode::ConnectFailed, "unreachable");
    assert_eq!(bad(&findings(&away)), [Check::Connection]);
}

#[test]
fn a_server_that_sleeps_can_be_woken_if_its_card_is_known() {
    let mut asleep = seen(Dialect::Ollama, "http://192.168.1.7:11434");
    asleep.knocks = at("192.168.1.7:11434", Knock::Silent);
    asleep.here = fails(FailureCode::ConnectFailed, "no connection within 4 s");
    let found = findings(&asleep);
    let finding = of(&found, Check::Connection);
    assert_eq!(finding.fix, None);
    assert!(
        finding.message.contains("network card"),
        "{}",
        finding.message
    );
    let card = MacAddress::parse("001b638445e6");
    asleep.provider.connection.wakes = card;
    let found = findings(&asleep);
    let fix = of(&found, Check::Connection).fix.clone();
    assert_eq!(fix, card.map(|card| Fix::Wake { card }));
}

#[test]
fn a_proxy_is_told_and_can_be_gone_past() {
    let proxy = "http://127.0.0.1:9".to_owned();
    let mut near = seen(Dialect::Ollama, "http://192.168.1.7:11434");
    near.system_proxy = Some(proxy.clone());
    near.here = works(&["m"]);
    let found = findings(&near);
    assert_eq!(bad(&found), []);
    let said = &of(&found, Check::Proxy).message;
    assert!(said.contains("goes past it"), "{said}");

    let mut far = seen(Dialect::OpenAiChat, "https://api.example.com/v1");
    far.system_proxy = Some(proxy.clone());
    far.here = fails(FailureCode::ConnectFailed, "refused");
    let found = findings(&far);
    assert_eq!(bad(&found), [Check::Proxy]);
    let direct = changed(of(&found, Check::Proxy));
    assert_eq!(direct.connection.proxy, ProxyChoice::Direct);

    let mut named = seen(Dialect::OpenAiChat, "http://gpu.lan/v1");
    named.provider.connection.proxy = ProxyChoice::Proxy { url: proxy };
    named.here = fails(FailureCode::ConnectFailed, "refused");
    assert_eq!(bad(&findings(&named)), [Check::Proxy]);
}

#[test]
fn a_certificate_is_offered_to_be_trusted_with_all_that_is_wrong_with_it() {
    let certificate = ShownCertificate {
        endpoint: "gpubox:8443".to_owned(),
        sha256: Fingerprint::from_bytes([0xab; 32]),
        subject: "Box".to_owned(),
        issuer: "Box".to_owned(),
        names: vec!["other".to_owned()],
        not_before: None,
        not_after: Some(protocol::Timestamp::from_millis(0)),
        faults: vec![
            CertificateFault::SelfSigned,
            CertificateFault::WrongName,
            CertificateFault::Expired,
        ],
    };
    let mut strange = seen(Dialect::OpenAiChat, "https://gpubox:8443/v1");
    strange.knocks = at("192.168.1.7:8443", Knock::Open);
    strange.here = Some(Asked::Fails {
        failure: Failure::new(FailureCode::ConnectFailed, "tls"),
        loading: false,
        certificate: Some(Box::new(certificate.clone())),
    });
    let found = findings(&strange);
    assert_eq!(bad(&found), [Check::Certificate]);
    let finding = of(&found, Check::Certificate);
    for words in [
        "itself vouches",
        "for other",
        "expired 1970-01-01",
        "AB:AB:AB",
    ] {
        assert!(
            finding.message.contains(words),
            "{words}: {}",
            finding.message
        );
    }
    let certificate = Box::new(certificate);
    assert_eq!(finding.fix, Some(Fix::Trust { certificate }));

    let trusted = TrustedCertificate {
        endpoint: "gpubox:8443".to_owned(),
        sha256: Fingerprint::from_bytes([1; 32]),
    };
    strange.provider.connection.trusts = Some(trusted);
    let found = findings(&strange);
    let said = &of(&found, Check::Certificate).message;
    assert!(
        said.contains("not the certificate that you trusted"),
        "{said}"
    );
    strange.here = works(&["m"]);
    let found = findings(&strange);
    assert_eq!(of(&found, Check::Certificate).verdict, Verdict::Note);
}

#[test]
fn the_certificate_of_a_proxy_is_no_certificate_of_the_server() {
    let certificate = ShownCertificate {
        endpoint: "proxy.lan:3129".to_owned(),
        sha256: Fingerprint::from_bytes([0xab; 32]),
        subject: "Proxy".to_owned(),
        issuer: "Proxy".to_owned(),
        names: vec!["proxy.lan".to_owned()],
        not_before: None,
        not_after: None,
        faults: vec![CertificateFault::SelfSigned],
    };
    for base in ["http://gpubox:8080/v1", "https://api.example.com/v1"] {
        let mut seen = seen(Dialect::OpenAiChat, base);
        let url = "https://proxy.lan:3129".to_owned();
        seen.provider.connection.proxy = ProxyChoice::Proxy { url };
        seen.here = Some(Asked::Fails {
            failure: Failure::new(FailureCode::ConnectFailed, "tls"),
            loading: false,
            certificate: Some(Box::new(certificate.clone())),
        });
        let found = findings(&seen);
        assert_eq!(bad(&found), [Check::Proxy], "{base}");
        let finding = of(&found, Check::Proxy);
        let said = &finding.message;
        assert!(said.contains("of the proxy proxy.lan:3129"), "{said}");
        let past = changed(finding);
        assert_eq!(past.connection.proxy, ProxyChoice::Direct, "{base}");
    }
}

#[test]
fn what_answers_and_is_no_model_server_is_named() {
    let mut page = seen(Dialect::OpenAiChat, "http://192.168.1.1/v1");
    page.knocks = at("192.168.1.1:80", Knock::Open);
    page.here = fails(
        FailureCode::BadStream,
        "Box sent a web page, not a model's reply.",
    );
    let found = findings(&page);
    assert_eq!(bad(&found), [Check::Server]);
    assert!(of(&found, Check::Server).message.contains("web page"));
}

#[test]
fn a_key_is_wanted_refused_or_kept_for_somebody_else() {
    let home = "https://api.example.com/v1";
    let mut locked = seen(Dialect::OpenAiChat, home);
    locked.here = fails(FailureCode::KeyRejected, "401");
    let found = findings(&locked);
    assert_eq!(bad(&found), [Check::Key]);
    assert_eq!(of(&found, Check::Key).fix, Some(Fix::EnterKey));
    assert!(of(&found, Check::Key).message.contains("none is kept"));
    locked.has_key = true;
    let found = findings(&locked);
    assert!(of(&found, Check::Key).message.contains("refuses the key"));

    locked.headers_unknown = vec!["X-Ticket".to_owned()];
    let found = findings(&locked);
    assert_eq!(bad(&found), [Check::Key]);
    let said = &of(&found, Check::Key).message;
    assert!(
        said.contains("X-Ticket") && said.contains("not asked"),
        "{said}"
    );
    let asks = found.iter().any(|finding| finding.check == Check::Server);
    assert!(!asks, "nobody asked who we are: {found:#?}");
    locked.headers_unknown.clear();

    locked.has_key = false;
    locked.key_trouble = Some(KeyTrouble::ForAnother {
        entered_for: "https://old.example.com".to_owned(),
    });
    let found = findings(&locked);
    assert_eq!(bad(&found), [Check::Key]);
    assert_eq!(of(&found, Check::Key).fix, Some(Fix::CarryKey));
}

#[test]
fn models_that_are_missing_or_would_be_loaded_anew_are_told() {
    let mut empty = seen(Dialect::Ollama, "http://localhost:11434");
    empty.here = works(&[]);
    assert_eq!(bad(&findings(&empty)), [Check::Models]);

    let mut other = seen(Dialect::Ollama, "http://localhost:11434");
    other.here = works(&["a:latest", "b"]);
    other.wanted.model = Some("gone".to_owned());
    let found = findings(&other);
    assert_eq!(bad(&found), [Check::Model]);
    let models = vec!["a:latest".to_owned(), "b".to_owned()];
    assert_eq!(
        of(&found, Check::Model).fix,
        Some(Fix::ChooseModel { models })
    );
    other.wanted.model = Some("a".to_owned());
    assert_eq!(bad(&findings(&other)), [], "its tag is latest");
    other.wanted.model = Some("B:latest".to_owned());
    assert_eq!(bad(&findings(&other)), [], "an Ollama sees one name");
    other.provider.dialect = Dialect::OpenAiChat;
    assert_eq!(bad(&findings(&other)), [Check::Model], "others see two");

    let mut loaded = seen(Dialect::Ollama, "http://localhost:11434");
    loaded.provider.num_ctx = Some(8192);
    let there = Model {
        loaded: Some(true),
        context_tokens: Some(4096),
        ..Model::named("m")
    };
    loaded.here = Some(Asked::Works {
        server: "Ollama".to_owned(),
        models: vec![there],
    });
    let found = findings(&loaded);
    let finding = of(&found, Check::Context);
    assert_eq!(finding.verdict, Verdict::Note);
    assert!(finding.message.contains("4096") && finding.message.contains("8192"));
    let told = |seen: &Seen| {
        let found = findings(seen);
        let mut all = found.into_iter();
        all.find(|finding| finding.check == Check::Context)
            .map(|finding| finding.message)
    };
    loaded.wanted.model = Some("M:latest".to_owned());
    assert!(told(&loaded).is_some(), "it is the same model");
    loaded.wanted.contexts = vec![("m:latest".to_owned(), 4096)];
    assert_eq!(told(&loaded), None, "the model's own word is nearer");
    loaded.provider.num_ctx = None;
    loaded.wanted.contexts = vec![("m".to_owned(), 16_384)];
    let words = told(&loaded).unwrap_or_default();
    assert!(words.contains("4096") && words.contains("16384"), "{words}");
}

#[test]
fn an_ollama_that_was_entered_as_something_else_is_offered_its_own_language() {
    let mut seen = seen(Dialect::OpenAiChat, "http://localhost:11434/v1");
    seen.here = works(&["m"]);
    seen.elsewhere = vec![answers(Dialect::Ollama, "http://localhost:11434")];
    let found = findings(&seen);
    assert_eq!(bad(&found), []);
    let better = changed(of(&found, Check::Language));
    assert_eq!(
        (better.dialect, better.base_url.as_str()),
        (Dialect::Ollama, "http://localhost:11434")
    );
}

#[test]
fn an_ollama_at_another_port_is_another_server() {
    assert_eq!(as_ollama("http://gpubox:11434/v1"), ["http://gpubox:11434"]);
    let typed = address::places("http://gpubox/v1").expect("an address");
    assert!(
        typed.len() > 1,
        "an address to be added is looked for at more"
    );
    assert_eq!(as_ollama("http://gpubox/v1"), ["http://gpubox"]);
}

#[test]
fn a_server_that_is_well_has_nothing_bad_and_its_findings_stand_in_order() {
    let mut seen = seen(Dialect::Ollama, "http://localhost:11434");
    seen.knocks = at("127.0.0.1:11434", Knock::Open);
    seen.here = works(&["m"]);
    seen.wanted.model = Some("m".to_owned());
    let found = findings(&seen);
    let checks: Vec<Check> = found.iter().map(|finding| finding.check).collect();
    assert_eq!(
        checks,
        [
            Check::Address,
            Check::Connection,
            Check::Server,
            Check::Key,
            Check::Models,
            Check::Model
        ]
    );
    assert!(found.iter().all(|finding| finding.verdict == Verdict::Good));
}

#[test]
fn the_packet_that_wakes_a_card_holds_its_address_sixteen_times() {
    let card = MacAddress::parse("00:1b:63:84:45:e6").unwrap();
    let packet = packet(&card);
    assert_eq!(packet.len(), 102);
    assert!(packet[..6].iter().all(|byte| *byte == 0xff));
    for part in packet[6..].chunks(6) {
        assert_eq!(part, card.bytes());
    }
}
