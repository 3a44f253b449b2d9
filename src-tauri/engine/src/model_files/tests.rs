use super::*;

#[test]
fn models_to_begin_with_are_small_free_and_whole() {
    let curated = curated();
    assert!((4..=6).contains(&curated.len()));
    assert!(curated.is_sorted_by_key(|model| model.size_bytes));
    for model in curated {
        assert!(
            matches!(model.license.as_str(), "Apache-2.0" | "MIT"),
            "{model:?}"
        );
        let (url, name) = address(&model.url).expect("an address");
        assert_eq!(
            url.as_str(),
            model.url,
            "a checksum is found by the very address"
        );
        assert!(model.url.ends_with(&name), "{model:?}");
        assert!(model.sha256.is_none_or(|sum| sum.len() == 64));
    }
}

#[test]
fn parts_of_one_model_are_told_by_their_names() {
    assert_eq!(part_of("kelp-00002-of-00003.gguf"), Some(("kelp", 2, 3)));
    assert_eq!(part_of("kelp-2-of-3.gguf"), None);
    assert_eq!(part_of("kelp.gguf"), None);
    assert_eq!(part_of("a"), None);
    let others = other_parts(Path::new("/m/kelp-00001-of-00003.gguf"));
    assert_eq!(
        others,
        [
            PathBuf::from("/m/kelp-00002-of-00003.gguf"),
            PathBuf::from("/m/kelp-00003-of-00003.gguf"),
        ]
    );
}

#[test]
fn memory_is_for_the_weights_the_conversation_and_the_work() {
    let facts = Facts {
        file_bytes: 1_000,
        weight_bytes: 900,
        token_bytes: Some(10),
        vocabulary: 2,
        ..Facts::default()
    };
    assert_eq!(needs(&facts, 100), 900 + 10 * 100 + 2 * 512 * 4);
}
