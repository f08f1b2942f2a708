package mortise;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The README's commands and its programs, as a new user would try them. */
@Timeout(240)
class ReadmeTest {
    private final String page;

    ReadmeTest() throws IOException {
        page = Files.readString(Path.of("README.md"));
    }

    @Test
    void the_readme_leads_to_a_working_lock() throws Exception {
        String said = follow("Sell", block(page, "java"), block(page, "xml"));
        assertTrue(said.contains("sold, with the fencing token") && said.contains("and once more"), said);
    }

    @Test
    void the_spring_program_of_the_readme_runs() throws Exception {
        String spring = page.substring(page.indexOf("## Spring"));
        String jedis = block(page, "xml").lines().filter(line -> line.contains("<artifactId>jedis<")).findFirst().orElseThrow() + "\n";
        String said = follow("Shop", block(spring, "java"), block(page, "xml").replace(jedis, block(spring, "xml")));
        assertTrue(said.contains("sold 17, with the fencing token"), said);
    }

    /** The output of the program, run by the README's commands. */
    private String follow(String program, String java, String pom) throws Exception {
        Path folder = Files.createTempDirectory("sell");
        Files.writeString(folder.resolve("pom.xml"), pom);
        // From a copy: these tests themselves run in this folder's target.
        Path copy = Files.createTempDirectory("mortise").resolve("java");
        try (var server = new TestServer()) {
            Files.writeString(folder.resolve(program + ".java"), java.replace("6379", "" + server.port));
            String commands = "set -e; mkdir " + copy + "; cp -r " + Path.of("pom.xml").toAbsolutePath() + " " + Path.of("src").toAbsolutePath() + " " + copy + "\n"
                + block(page, "sh").replace("…/mortise/helpers/java", copy.toString()).replace("=Sell", "=" + program);
            String said = run(folder, "bash", "-c", commands);
            assertTrue(server.isFree("stock:17"));
            return said;
        }
    }

    private static String run(Path folder, String... command) throws Exception {
        var process = new ProcessBuilder(command).directory(folder.toFile()).redirectErrorStream(true).start();
        var said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertEquals(0, process.waitFor(), said);
        return said;
    }

    private static String block(String page, String language) {
        int start = page.indexOf("```" + language + "\n") + language.length() + 4;
        return page.substring(start, page.indexOf("```", start));
    }
}
