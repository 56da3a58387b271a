//! Small templates against Python's Jinja2 in Hugging Face's settings (`tests/vectors/prompt-jinja`).

use minijinja::value::Value;
#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::Skip;
use super::clock::Clock;
use super::request::field;
use super::template::Template;
use super::work::Work;

const VECTORS: &str = include_str!("../../../tests/vectors/prompt-jinja/expressions.json");
/// 2026-11-29 18:00:00
const NOW_UNIX_S: i64 = 1_795_975_200;

fn render(template: &str, x: &Value) -> Result<String, String> {
    let template = Template::compile(template).map_err(|error| format!("{error:#}"))?;
    let variables = vec![(Value::from("x"), x.clone())];
    template
        .render(variables, Clock::at(NOW_UNIX_S, 0), &Work::unlimited())
        .map_err(|skip| skip.to_string())
}

#[test]
fn small_templates_render_as_in_python() {
    let vectors: Value = serde_json::from_str(VECTORS).unwrap();
    let (x, cases) = (
        field(&vectors, "x").unwrap(),
        field(&vectors, "cases").unwrap(),
    );
    let mut wrong = Vec::new();
    for case in cases.try_iter().unwrap() {
        let template = field(&case, "template").unwrap();
        let ours = render(template.as_str().unwrap(), &x);
        // Where Python fails the engine answers 400, and anything goes.
        if let Some(expected) = field(&case, "expect")
            && ours.as_deref() != Ok(expected.as_str().unwrap())
        {
            wrong.push(format!(
                "{template:?}\n  Python {expected:?}\n  ours   {ours:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn work_and_memory_are_bounded() {
    let x = Value::from(());
    for template in [
        "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
        "{{ 'x' * 100000000 }}",
        "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{{ 'x'.ljust(100000000) }}",
        "{% set ns = namespace(s='xxxxxxxxxxxxxxxx') %}{% for i in range(9) %}{% set ns.s = ns.s.replace('x', 'xxxxxxxxxxxxxxxx') %}{% endfor %}",
    ] {
        let rendered = render(template, &x);
        let limit = Skip::TemplateLimit.as_str();
        // Some are refused by the engine's own limits on single values.
        assert!(rendered.is_err(), "{template}");
        assert!(
            template.contains("* 1") || rendered == Err(limit.to_owned()),
            "{rendered:?}"
        );
    }
}

#[test]
fn recursion_is_bounded() {
    let x = Value::from(());
    assert!(render("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", &x).is_err());
}

#[test]
fn the_clock_is_the_engines() {
    let at = |unix_s, minutes, format| Clock::at(unix_s, minutes).strftime(format);
    assert_eq!(
        at(0, 0, "%Y-%m-%d %H:%M:%S %a %j"),
        "1970-01-01 00:00:00 Thu 001"
    );
    assert_eq!(
        at(0, -1, "%Y-%m-%d %H:%M:%S %a %j"),
        "1969-12-31 23:59:00 Wed 365"
    );
    assert_eq!(at(1_709_164_799, 1, "%d %B %Y %j"), "29 February 2024 060");
    assert_eq!(at(951_782_400, 330, "%F %R %j"), "2000-02-29 05:30 060");
    assert_eq!(at(i64::MAX, i32::MAX, "%%"), "%");
    assert_eq!(at(i64::MIN, i32::MIN, "%q %"), "%q %");
}
