//! How much memory a process holds, where the system says so without being pressed.

/// In bytes.
pub(super) fn of_process(pid: u32) -> Option<u64> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let said = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    kibibytes(&said, "VmRSS:")
}

fn kibibytes(said: &str, name: &str) -> Option<u64> {
    let line = said.lines().find_map(|line| line.strip_prefix(name))?;
    let number: u64 = line.split_whitespace().next()?.parse().ok()?;
    number.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_system_is_read_in_bytes() {
        let said = "MemTotal:       24576000 kB\nMemAvailable:    2048 kB\n";
        assert_eq!(kibibytes(said, "MemAvailable:"), Some(2 * 1024 * 1024));
        assert_eq!(kibibytes(said, "VmRSS:"), None);
    }
}
