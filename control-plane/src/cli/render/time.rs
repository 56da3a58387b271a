//! `2026-11-29T18:00:00` -> seconds since 1970, as if it were UTC.

use std::time::SystemTime;

/// Now, in UTC.
pub(super) fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or_default()
    })
}

/// Reads a date and time, with a `T` or a space between, and perhaps a `Z` behind.
pub(super) fn parse(text: &str) -> Result<i64, String> {
    read(text).ok_or_else(|| "expected a time like 2026-11-29T18:00:00".to_owned())
}

fn read(text: &str) -> Option<i64> {
    let (date, time) = text.trim_end_matches('Z').split_once(['T', ' '])?;
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time, ':')?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last_day = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    let fine = (1..=9999).contains(&year)
        && (1..=last_day).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    fine.then(|| days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Three numbers of digits only.
fn numbers(text: &str, between: char) -> Option<[i64; 3]> {
    let mut parts = text.split(between).map(|part| {
        let digits =
            !part.is_empty() && part.len() <= 4 && part.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| part.parse().ok()).flatten()
    });
    let found = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(found)
}

/// Days from 1970-01-01 in the Gregorian calendar, counting years from March.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let before = year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    before + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        assert_eq!(parse("1970-01-01T00:00:00"), Ok(0));
        assert_eq!(parse("2026-11-29T18:00:00"), Ok(1_795_975_200));
        assert_eq!(parse("2026-11-29 18:00:00Z"), Ok(1_795_975_200));
        assert_eq!(parse("2000-02-29T23:59:59"), Ok(951_868_799));
        assert_eq!(parse("1969-12-31T23:59:59"), Ok(-1));
        for wrong in [
            "",
            "2026-11-29",
            "2026-13-01T00:00:00",
            "2025-02-29T00:00:00",
            "2026-11-29T24:00:00",
            "2026-11-29T1:2",
            "2026-11--29T00:00:00",
            "2026-11-29T00:00:00+01:00",
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
