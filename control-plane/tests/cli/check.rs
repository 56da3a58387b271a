//! `check`: all that is wrong is told at once, each with its place.

use std::process::Output;

use serde_json::Value;

use super::common::Temp;
use super::fed::fed;
use super::run;

/// The places of all errors.
fn paths(output: &Output) -> Vec<String> {
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let errors = told["errors"].as_array().unwrap().iter();
    let mut paths: Vec<String> = errors
        .map(|e| e["path"].as_str().unwrap().to_owned())
        .collect();
    paths.sort_unstable();
    paths
}

#[test]
fn every_file_that_is_missing_is_told_with_its_field() {
    let temp = Temp::new("check-files");
    let yaml = "tokens: [t]\ndata_dir: /dev/null/state\npools:\n- name: a\n  model_dir: /no/model\n  \
        chat_template: /no/template.jinja\n  api_key_file: /no/key\n  models: [m]\n  clusters: [c]\n  discovery:\n    \
        kubernetes: {namespace: ml, label_selector: app=vllm, kubeconfig: /no/kubeconfig}\n";
    let file = temp.file("files.yaml", yaml);
    let output = run(&["check", file.to_str().unwrap(), "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let told = paths(&output);
    let wanted = [
        "data_dir",
        "pools[0].api_key_file",
        "pools[0].chat_template",
        "pools[0].discovery.kubernetes.kubeconfig",
        "pools[0].model_dir",
    ];
    assert_eq!(told, wanted);

    // Nothing hides behind a field that is wrong, and what stands for such a field was not asked for.
    let yaml = yaml.replace("data_dir: /dev/null/state", "data_dir: 7\nlog_format: xml");
    let yaml = yaml.replace("models: [m]", "models: [m]\n  nodels: [m]");
    let output = fed(&["check", "-", "--json"], &yaml);
    assert_eq!(output.status.code(), Some(2));
    let told = paths(&output);
    let mut wanted = wanted.to_vec();
    wanted.extend(["log_format", "pools[0].nodels"]);
    wanted.sort_unstable();
    assert_eq!(told, wanted);
}

/// Items of lists that are wrong hide no others, and keep their numbers.
#[test]
fn files_are_told_by_their_places_in_lists() {
    let yaml = "tokens: [t]\ntoken_files: [5, /no/a, /no/a, /no/b]\ndata_dir: /tmp\npools:\n- 5\n\
        - {name: a, model_dir: /no/1, models: [m], clusters: [c], replicas: [7, {endpoint: '10.0.0.1:1', events: 'tcp://a:1'}]}\n\
        - {name: b, model_dir: /no/2, models: [m], clusters: [c], replicas: [{endpoint: '10.0.0.1:1', events: 'tcp://b:1'}]}\n";
    let output = fed(&["check", "-", "--json"], yaml);
    let told = paths(&output);
    let wanted = [
        "pools[0]",
        "pools[1].model_dir",
        "pools[1].replicas[0]",
        "pools[2].model_dir",
        "pools[2].models",
        "pools[2].replicas[0].endpoint",
        "pools[2].replicas[0].name",
        "token_files[0]",
        "token_files[1]",
        "token_files[2]",
        "token_files[3]",
    ];
    assert_eq!(told, wanted);
}
