//! The engine of our own, with a real model in a real process. The words are the model's own; what is asserted is ours.
//!
//! `HOLDFAST_MODEL` is a GGUF file of a small model, `HOLDFAST_APP` an app that was built with the engine.

use std::{
    ffi::OsString,
    ops::Range,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use engine::gateway::local::Host;
use protocol::{
    Decimal, Dialect, EventBody, FailureCode, ManageModelArgs, ModelAction, ModelOptions, ModelRef,
    Op, Provider, ProviderId, SessionId, Think, ToolOutcome, TurnId, TurnOutcome, Usage,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tests::{
    client::{Client, Page},
    model_server::model_of,
    sentinel::random_u128,
    verdict::judge,
    watched::within_limit,
    world::World,
};
use transcript::Transcript;

fn setting(name: &str) -> PathBuf {
    std::env::var_os(name)
        .unwrap_or_else(|| panic!("{name} is not set"))
        .into()
}

fn host() -> Host {
    Host::new(setting("HOLDFAST_APP"), [OsString::from("--model-process")])
}

fn provider(folder: &Path) -> Provider {
    Provider {
        id: ProviderId::from_bits(1),
        name: "This computer".to_owned(),
        dialect: Dialect::Local,
        base_url: folder.display().to_string(),
        num_ctx: Some(2048),
        keep_alive: None,
        files: Vec::new(),
        think: Think::ServerDefault,
        limits: None,
        connection: protocol::Connection::default(),
    }
}

/// A world with the model of `file`, which runs as `host` says.
async fn world_with(host: Host, file: &Path) -> (World, ModelRef) {
    let mut world = World::without_engine();
    world.live_in_real_time();
    world.host = host;
    world.open().await;
    let provider = provider(file.parent().expect("a folder"));
    world.add(provider.clone()).await;
    let name = file.file_name().expect("a name").to_string_lossy();
    (world, model_of(&provider, &name))
}

async fn begin(world: &World, model: &ModelRef, text: &str, most: u32) -> (SessionId, Window) {
    begin_in(None, world, model, text, most).await
}

/// The same with tools that see the files of a folder.
async fn begin_in(
    folder: Option<&Path>,
    world: &World,
    model: &ModelRef,
    text: &str,
    most: u32,
) -> (SessionId, Window) {
    let session = SessionId::from_bits(random_u128());
    let begin = Op::StartSession {
        session,
        model: model.clone(),
        text: text.to_owned(),
        images: Vec::new(),
        folder: folder.map(|folder| folder.display().to_string()),
        options: ModelOptions {
            num_predict: Some(most),
            temperature: Decimal::nearest(0.0),
            ..ModelOptions::default()
        },
    };
    world.submit(begin).await.expect("it begins");
    let window = Page::load(&world.line, "main").await.follow(session);
    (session, window)
}

type Window = Client<Transcript>;

fn outcome(window: &Window) -> Option<TurnOutcome> {
    window.look(|shown| shown?.turns().next_back()?.outcome.clone())
}

fn failure(window: &Window) -> protocol::Failure {
    match outcome(window) {
        Some(TurnOutcome::Failed { failure }) => failure,
        other => panic!("{other:?}"),
    }
}

/// What the events of a session say of one thing, in their order.
fn told<T>(world: &World, session: SessionId, of: impl Fn(EventBody) -> Option<T>) -> Vec<T> {
    let events = world.events(session).into_iter();
    events.filter_map(|event| of(event.body)).collect()
}

fn usages(world: &World, session: SessionId) -> Vec<Usage> {
    told(world, session, |body| match body {
        EventBody::StepEnded { usage, .. } => Some(usage),
        _ => None,
    })
}

/// How calls ended.
fn calls_made(world: &World, session: SessionId) -> Vec<ToolOutcome> {
    told(world, session, |body| match body {
        EventBody::ToolCallFinished { outcome, .. } => Some(outcome),
        _ => None,
    })
}

/// Of how many tools the model of each answer was not told.
fn untold(world: &World, session: SessionId) -> Vec<u64> {
    told(world, session, |body| match body {
        EventBody::StepEnded { untold_tools, .. } => Some(untold_tools),
        _ => None,
    })
}

/// Where the text of a key lies in a model's file.
fn text_of(file: &[u8], key: &str) -> Range<usize> {
    let at = file
        .windows(key.len())
        .position(|part| part == key.as_bytes());
    // After the key: the type, four bytes, and the length, eight.
    let at = at.expect("the key") + key.len() + 4;
    let length: [u8; 8] = file[at..at + 8].try_into().expect("a length");
    let length = usize::try_from(u64::from_le_bytes(length)).expect("a length");
    at + 8..at + 8 + length
}

/// The real model with another chat template, written over its own.
fn with_template(template: &str) -> Vec<u8> {
    let mut bytes = std::fs::read(setting("HOLDFAST_MODEL")).expect("the model's file");
    let at = text_of(&bytes, "tokenizer.chat_template");
    assert!(template.len() <= at.len(), "{} of {at:?}", template.len());
    // Of the same length, so that nothing in the file moves.
    let padded = format!("{}{template}", " ".repeat(at.len() - template.len()));
    bytes[at].copy_from_slice(padded.as_bytes());
    bytes
}

/// A small model is no good at tools, but it goes on with a pattern: the template is nothing but examples, of calls
/// until there is a result, and of answers from then on.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a model and an app with the engine"]
async fn a_call_in_the_form_that_the_template_teaches_is_run_and_answered() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, mark, call) in [
        (
            "tagged",
            "",
            r#"<tool_call>{"name": "current_time", "arguments": {}}</tool_call>"#,
        ),
        (
            "parameters",
            "",
            "<tool_call>\n<function=current_time>\n</function>\n</tool_call>",
        ),
        (
            "mistral-list",
            "",
            r#"[TOOL_CALLS][{"name": "current_time", "arguments": {}}]"#,
        ),
        ("mistral-named", "", "[TOOL_CALLS]current_time[ARGS]{}"),
        (
            "barred",
            "",
            r#"<|tool_call|>[{"name": "current_time", "arguments": {}}]"#,
        ),
        (
            "bare",
            "<|python_tag|>",
            r#"{"name": "current_time", "parameters": {}}"#,
        ),
        (
            "channels",
            "<|call|>",
            "<|channel|>commentary to=functions.current_time<|message|>{}",
        ),
    ] {
        let said = match name {
            "channels" => "<|channel|>final<|message|>It is noon.",
            _ => "It is noon.",
        };
        let template = format!(
            "{{#{mark}#}}{{{{tools[0].function.name}}}}{{%if messages[-1].role!='tool'%}}{{%set a='{call}'%}}{{%else%}}{{%set a='{said}'%}}{{%endif%}}{{%for i in range(9)%}}\nQ: Time?\nA:{{{{a}}}}<|im_end|>{{%endfor%}}\nQ: Time?\nA:"
        );
        let file = folder.path().join(format!("{name}.gguf"));
        std::fs::write(&file, with_template(&template)).expect("written");
        let (world, model) = world_with(host(), &file).await;
        let (session, window) = begin(&world, &model, "Time?", 200).await;
        window.until_idle().await;
        let calls = calls_made(&world, session);
        assert!(
            matches!(calls.as_slice(), [ToolOutcome::Succeeded { .. }]),
            "{name}: {calls:?} {}",
            window.text()
        );
        let text = window.text();
        assert!(text.contains("It is noon."), "{name}: {text}");
        assert!(!text.contains("<|"), "{name}: {text}");
        assert_eq!(untold(&world, session), [0, 0], "{name}");
        judge(&world, session, &[&window]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a model and an app with the engine"]
async fn a_model_that_takes_no_tools_says_that_it_saw_no_files() {
    let (world, model) = world_with(host(), &setting("HOLDFAST_MODEL")).await;
    let folder = tempfile::tempdir().expect("a folder");
    let (session, window) = begin_in(Some(folder.path()), &world, &model, "Hello?", 4).await;
    window.until_idle().await;
    let untold = untold(&world, session);
    assert!(
        matches!(untold.as_slice(), [tools] if *tools >= 2),
        "{untold:?}"
    );
    judge(&world, session, &[&window]).await;
}

/// The processes that this one has started as models.
fn processes() -> Vec<Pid> {
    let ours = std::process::id().to_string();
    let found = std::fs::read_dir("/proc").expect("Linux");
    found
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let said = std::fs::read_to_string(path.join("stat")).ok()?;
            let (_, rest) = said.rsplit_once(") ")?;
            let parent = rest.split(' ').nth(1)?;
            let command = std::fs::read(path.join("cmdline")).ok()?;
            let is_model = String::from_utf8_lossy(&command).contains("--model-process");
            let pid: i32 = path.file_name()?.to_str()?.parse().ok()?;
            (parent == ours && is_model).then(|| Pid::from_raw(pid))?
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a model and an app with the engine"]
async fn a_second_turn_does_not_read_the_first_ones_prompt_again() {
    let (world, model) = world_with(host(), &setting("HOLDFAST_MODEL")).await;
    let text = "What is the capital of France? Answer in one sentence.";
    let (session, window) = begin(&world, &model, text, 24).await;
    window.until_idle().await;
    world.say(session, "And of Italy?").await;
    window
        .until_shown("the second turn to end", |shown| {
            (shown.turns().len() == 2 && shown.running().is_none()).then_some(())
        })
        .await;
    let usages = usages(&world, session);
    let [first, second] = usages.as_slice() else {
        panic!("two steps: {usages:?} {:?}", outcome(&window));
    };
    println!("{first:?}\n{second:?}");
    let (read, kept) = (first.prompt_tokens, second.cached_tokens);
    assert_eq!(first.cached_tokens, Some(0));
    // All of the first prompt, and of the answer all but what the template may write otherwise.
    assert!(kept >= read, "{usages:?}");
    assert!(second.prompt_tokens > kept, "and what is new was read");
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a model and an app with the engine"]
async fn a_process_killed_in_mid_answer_is_a_named_end_and_the_next_turn_has_another() {
    let (world, model) = world_with(host(), &setting("HOLDFAST_MODEL")).await;
    let (session, window) = begin(&world, &model, "Tell me a long story.", 1500).await;
    window
        .until_text("some of the answer", |text| text.len() > 120)
        .await;
    let drawn = window.text();
    let pids = processes();
    let [pid] = pids.as_slice() else {
        panic!("one process: {pids:?}");
    };
    kill_process(*pid, Signal::KILL).expect("it runs");
    window.until_idle().await;
    let failure = failure(&window);
    assert_eq!(failure.code, FailureCode::StreamCut);
    assert!(failure.message.contains("killed (signal 9)"), "{failure:?}");
    let said = drawn.lines().nth(1).expect("an answer").trim_end();
    assert!(window.text().contains(said), "the part that came is kept");
    let most = ModelOptions {
        num_predict: Some(8),
        ..ModelOptions::default()
    };
    world
        .submit(Op::ChooseOptions {
            session,
            options: most,
        })
        .await
        .expect("changed");
    world.say(session, "And now?").await;
    window
        .until_shown("the second turn to end", |shown| {
            (shown.turns().len() == 2 && shown.running().is_none()).then_some(())
        })
        .await;
    assert!(
        matches!(outcome(&window), Some(TurnOutcome::Completed { .. })),
        "{:?}",
        outcome(&window)
    );
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a model and an app with the engine"]
async fn a_stop_is_heeded_and_the_model_stays_in_memory() {
    let (world, model) = world_with(host(), &setting("HOLDFAST_MODEL")).await;
    let (session, window) = begin(&world, &model, "Tell me a long story.", 1500).await;
    window
        .until_text("some of the answer", |text| text.len() > 120)
        .await;
    let before = processes();
    world.stop(session, TurnId::FIRST).await;
    window.until_idle().await;
    world.say(session, "Stop. Say goodbye.").await;
    let second = |shown: &Transcript| {
        let turn = shown.turns().nth(1)?;
        (!turn.items.is_empty()).then_some(())
    };
    window.until_shown("the second answer", second).await;
    assert_eq!(processes(), before, "the same process answers");
    world.stop(session, TurnId::FIRST.next()).await;
    window.until_idle().await;
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a model and an app with the engine"]
async fn what_is_no_model_fails_by_name_and_does_no_harm() {
    let real = std::fs::read(setting("HOLDFAST_MODEL")).expect("the model's file");
    let folder = tempfile::tempdir().expect("a folder");
    let half = &real[..real.len() / 2];
    let mut foreign = real.clone();
    let at = text_of(&real, "general.architecture").start;
    foreign[at..at + 5].copy_from_slice(b"kelpy");
    let picture = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR and so on".as_slice();
    for (name, bytes, code, words) in [
        ("half.gguf", half, FailureCode::ModelLoadFailed, "is cut:"),
        (
            "foreign.gguf",
            foreign.as_slice(),
            FailureCode::ModelLoadFailed,
            "of the kind ‘kelpy’",
        ),
        (
            "picture.gguf",
            picture,
            FailureCode::ModelLoadFailed,
            "this is a picture and not a model",
        ),
        (
            "empty.gguf",
            b"",
            FailureCode::ModelLoadFailed,
            "the file is empty",
        ),
    ] {
        let file = folder.path().join(name);
        std::fs::write(&file, bytes).expect("written");
        let (world, model) = world_with(host(), &file).await;
        let (session, window) = begin(&world, &model, "Hello?", 8).await;
        window.until_idle().await;
        let failure = failure(&window);
        assert_eq!(failure.code, code, "{name}: {failure:?}");
        assert!(failure.message.contains(words), "{name}: {failure:?}");
        judge(&world, session, &[&window]).await;
    }
    let (world, model) = world_with(host(), &folder.path().join("gone.gguf")).await;
    let (_, window) = begin(&world, &model, "Hello?", 8).await;
    window.until_idle().await;
    assert_eq!(failure(&window).code, FailureCode::ModelNotFound);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a model and an app with the engine"]
async fn want_of_memory_is_a_named_end_of_the_turn() {
    let app = setting("HOLDFAST_APP");
    // 150 MB of addresses: enough to start, too little for the model.
    let limited = Host::new(
        "/bin/sh",
        [
            "-c".into(),
            "ulimit -v 150000; exec \"$0\" --model-process".into(),
            app.into_os_string(),
        ],
    );
    let (world, model) = world_with(limited, &setting("HOLDFAST_MODEL")).await;
    let (session, window) = begin(&world, &model, "Hello?", 8).await;
    window.until_idle().await;
    let failure = failure(&window);
    println!("{failure:?}");
    assert_eq!(failure.code, FailureCode::ModelLoadFailed, "{failure:?}");
    judge(&world, session, &[&window]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a model and an app with the engine"]
async fn fifty_times_in_and_out_of_memory_leave_ours_as_it_was() {
    let (world, model) = world_with(host(), &setting("HOLDFAST_MODEL")).await;
    let resident = || -> u64 {
        let said = std::fs::read_to_string("/proc/self/status").expect("Linux");
        let line = said.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        number.expect("a number of kB")
    };
    let mut after_ten = 0;
    for cycle in 0..50 {
        // A conversation of its own each time: a long one would be about reading, not about loading.
        let (_, window) = begin(&world, &model, "Hello?", 1).await;
        window.until_idle().await;
        assert!(
            matches!(outcome(&window), Some(TurnOutcome::Completed { .. })),
            "{:?}",
            outcome(&window)
        );
        let unload = ManageModelArgs {
            provider: model.provider,
            action: ModelAction::Unload {
                model: model.model.clone(),
            },
        };
        world.engine().manage_model(unload).await.expect("unloaded");
        assert_eq!(
            processes(),
            [],
            "its process is gone, and its memory with it"
        );
        if cycle == 9 {
            after_ten = resident();
        }
    }
    let grown = resident().saturating_sub(after_ten);
    println!("{after_ten} kB after ten, {grown} kB more after fifty");
    assert!(grown < 16 * 1024, "{grown} kB more");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a model and an app with the engine"]
async fn a_process_ends_with_whoever_started_it() {
    use std::io::{BufRead, BufReader, Write};
    let mut process = Command::new(setting("HOLDFAST_APP"))
        .arg("--model-process")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdin = process.stdin.take().expect("its stdin");
    let mut lines = BufReader::new(process.stdout.take().expect("its stdout")).lines();
    let load = protocol::model_process::Order::Load(protocol::model_process::Load {
        file: setting("HOLDFAST_MODEL").display().to_string(),
        num_ctx: Some(2048),
        threads: None,
        gpu_layers: None,
    });
    writeln!(stdin, "{}", serde_json::to_string(&load).expect("JSON")).expect("told");
    let is_loaded = |line: &String| line.contains("\"Loaded\"");
    lines
        .by_ref()
        .map(|line| line.expect("a line"))
        .find(is_loaded)
        .expect("it loads");
    writeln!(
        stdin,
        "{{\"order\":\"Ask\",\"ask\":1,\"messages\":[{{\"role\":\"user\",\"content\":\"A long story.\"}}]}}"
    )
    .expect("asked");
    lines
        .by_ref()
        .map(|line| line.expect("a line"))
        .find(|line| line.contains("\"Text\""))
        .expect("it answers");
    drop(stdin);
    let ended = tokio::task::spawn_blocking(move || process.wait());
    within_limit("the process to end", ended)
        .await
        .expect("waited")
        .expect("it ended");
}

/// A small model may go on until its context is full, and the machine may be slow.
const ANSWER_MAX: Duration = Duration::from_secs(600);

/// What the app says at the terminal.
async fn ran(data_dir: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let asking = tokio::process::Command::new(setting("HOLDFAST_APP"))
        .arg("--data-dir")
        .arg(data_dir)
        .args(arguments)
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true)
        .output();
    let ran = tokio::time::timeout(ANSWER_MAX, asking).await;
    let ran = ran.expect("in time").expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (ran.status.code(), text(&ran.stdout), text(&ran.stderr))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a model and an app with the engine"]
async fn at_the_terminal_a_file_is_asked_twice_listed_and_examined() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = setting("HOLDFAST_MODEL").display().to_string();
    let local = format!("local={file}");
    let json = async |arguments: &[&str]| -> Value {
        let (_, out, err) = ran(folder.path(), arguments).await;
        serde_json::from_str(&out).unwrap_or_else(|_| panic!("JSON: {out} {err}"))
    };
    let mut answers = Vec::new();
    for asking in [
        &["ask", "--provider", &local, "Say hello."][..],
        &["ask", "--session", "last", "Say goodbye."],
    ] {
        let (code, out, err) = ran(folder.path(), asking).await;
        assert_eq!(code, Some(0), "{err}");
        assert!(!out.trim().is_empty(), "{err}");
        answers.push(out);
    }
    let shown = json(&["show", "last", "--json"]).await;
    let turns = shown["turns"].as_array().expect("turns");
    assert_eq!(turns.len(), 2, "{shown}");
    for (turn, answer) in turns.iter().zip(&answers) {
        assert_eq!(turn["model"]["provider_name"], "This computer");
        let words = Value::from(answer.trim()).to_string();
        let said = turn.to_string();
        assert!(said.contains(words.trim_matches('"')), "{words} in {said}");
    }

    // What was asked by its path is one of the models of this computer.
    let listed = json(&["models", "local", "--json"]).await;
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(listed[0]["file"]["path"], file);
    assert_eq!(listed[0]["file"]["ours"], false);
    for server in [&[][..], &["This computer"], &[local.as_str()]] {
        let (code, out, err) = ran(folder.path(), &[&["doctor"], server].concat()).await;
        assert_eq!(code, Some(0), "{out} {err}");
        for words in ["Holdfast's own engine", "There is one model."] {
            assert!(out.contains(words), "{words}: {out}");
        }
    }
    let (code, out, _) = ran(folder.path(), &["doctor", "local=/no/such/folder"]).await;
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("There is no folder /no/such/folder."), "{out}");
}
